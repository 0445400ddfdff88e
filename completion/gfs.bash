# shellcheck shell=bash
# bash completion for gfs(1)

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

	case $previous in
	-o | --key)
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
		;;
	esac

	case $command in
	'') words='key ping --help --version' ;;
	key)
		case $action in
		'') words='new add --help' ;;
		new) words='user: host: -o --help' ;;
		*)
			mapfile -t COMPREPLY < <(compgen -f -- "$current")
			return
			;;
		esac
		;;
	ping) words='--key -c --json --help' ;;
	*) words='' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _gfs gfs
