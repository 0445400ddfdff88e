# shellcheck shell=bash
# bash completion for gfs(1)

_gfs_files() { mapfile -t COMPREPLY < <(compgen -f -- "$1"); }

# Paths of the grid, if it answers soon; a directory ends in a slash and goes on.
_gfs_paths()
{
	local current=${1#gfs:} dir
	dir=${current%"${current##*/}"}
	compopt -o filenames -o nospace 2>/dev/null
	mapfile -t COMPREPLY < <(
		{
			timeout 2 gfs find "${dir:-/}" -mindepth 1 -maxdepth 1 -type d |
				sed 's|$|/|'
			timeout 2 gfs find "${dir:-/}" -mindepth 1 -maxdepth 1 -type flpsbc
		} 2>/dev/null | while IFS= read -r path; do
			[[ $path == "/${current#/}"* ]] && printf '%s\n' "$path"
		done
	)
}

_gfs()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command='' action='' i words
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-c | --config) [ -n "$command" ] || i=$((i + 1)) ;;
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
	case $command:$previous in
	*:--config | :-c | key:-o | *:--output | *:-k | *:--key)
		_gfs_files "$current"
		return
		;;
	*:--expires)
		mapfile -t COMPREPLY < <(compgen -W 'never 30d 365d' -- "$current")
		return
		;;
	up:-d | down:-d | *:--dir | *:--mount)
		mapfile -t COMPREPLY < <(compgen -d -- "$current")
		return
		;;
	ping:-[ciW] | *:--count | *:--interval | *:--timeout | *:-W | *:--fsd | *:--rpcd | \
		touch:-d | *:--date | mkdir:-m | *:--mode | find:*name | find:*size | \
		find:*mtime | find:*depth | rep:-n | *:--copies | du:-d | *:--max-depth)
		COMPREPLY=()
		return
		;;
	find:*type)
		mapfile -t COMPREPLY < <(compgen -W 'f d l p s b c' -- "$current")
		return
		;;
	*:--progress)
		mapfile -t COMPREPLY < <(compgen -W 'auto always never' -- "$current")
		return
		;;
	find:*newer | touch:-r | *:--reference)
		_gfs_paths "$current"
		return
		;;
	esac

	case $command in
	'') words='cat chmod chown cp df down du find get key ln ls mkdir mv ping put rep rm stat status touch
		up where --config --help --version' ;;
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
	up) words='--dir --fsd --rpcd --mount --json --help' ;;
	down) words='--dir --timeout --force --destroy --yes --help' ;;
	status) words='--config --timeout --json --help' ;;
	cat) words='--config --help' ;;
	chmod) words='--recursive --verbose --config --help' ;;
	chown) words='--no-dereference --recursive --verbose --config --help' ;;
	cp | get | put)
		words='--force --no-clobber --preserve --progress --recursive --resume --verbose --config
		--help'
		;;
	df) words='--bytes --json --timeout --config --help' ;;
	du) words='--all --bytes --json --max-depth --summarize --total --config --help' ;;
	rep) words='--copies --recursive --timeout --verbose --wait --config --help' ;;
	where) words='--json --recursive --config --help' ;;
	find)
		words='-name -iname -type -size -mtime -newer -empty -mindepth -maxdepth -print -print0
		--json --config --help'
		;;
	ln) words='--force --symbolic --no-target-directory --verbose --config --help' ;;
	ls) words='--all --directory --human-readable --recursive --reverse --json --config --help' ;;
	mkdir) words='--mode --parents --verbose --config --help' ;;
	mv) words='--exchange --force --no-clobber --no-target-directory --verbose --config --help' ;;
	rm) words='--force --interactive --recursive --verbose --config --help' ;;
	stat) words='--dereference --json --config --help' ;;
	touch) words='--no-create --date --reference --config --help' ;;
	*) words='' ;;
	esac
	# Arguments of the file commands are paths of the grid; put and get have local ones, too.
	if [[ $current != -* ]]; then
		case $command:$action in
		put: | get:?*)
			_gfs_files "$current"
			return
			;;
		cat:* | chmod:?* | chown:?* | cp:* | du:* | find:* | get: | ln:* | ls:* | mkdir:* | mv:* | \
			put:?* | rep:* | rm:* | stat:* | touch:* | where:*)
			_gfs_paths "$current"
			return
			;;
		esac
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _gfs gfs
