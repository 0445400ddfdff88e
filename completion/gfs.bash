# shellcheck shell=bash
# bash completion for gfs(1)

_gfs_files() { mapfile -t COMPREPLY < <(compgen -f -- "$1"); }

_gfs()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command='' action='' i words
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-*) ;;
		*)
			if [ -z "$command" ]; then
				command=${COMP_WORDS[i]}
			elif [ -z "$action" ]; then
				action=${COMP_WORDS[i]}
			fi
			;;
		esac
	done

	# The value of an option.
	case $previous in
	-o | --output | -k | --key)
		_gfs_files "$current"
		return
		;;
	--expires)
		mapfile -t COMPREPLY < <(compgen -W 'never 30d 365d' -- "$current")
		return
		;;
	-c | --count | -i | --interval | -W | --timeout)
		COMPREPLY=()
		return
		;;
	esac

	case $command in
	'') words='key ping --help --version' ;;
	key)
		case $action in
		'') words='new add remove list --help' ;;
		new) words='user: host: --output --expires --admin --help' ;;
		add) words='--replace --help' ;;
		remove) words='--help' ;;
		list) words='--json --help' ;;
		*) words='' ;;
		esac
		# Tables and key files are arguments everywhere but after "new".
		if [ -n "$action" ] && [ "$action" != new ] && [[ $current != -* ]]; then
			_gfs_files "$current"
			return
		fi
		;;
	ping) words='--key --count --interval --timeout --quiet --insecure --json --help tls: unix:' ;;
	*) words='' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _gfs gfs
