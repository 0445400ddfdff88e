# bash completion for gfsmount(8)

_gfsmount()
{
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	local options='ro allow_other auto_unmount nosuid nodev noexec noatime no_default_permissions
	config= hard soft meta_timeout= data_timeout= cache= ncopy= timeout= names=no writeback
	read_ahead= pid_file='
	if [ "$before" = -o ]; then
		# Options are a list; what is complete already stays in front.
		local done=''
		[[ $current != *,* ]] || done=${current%,*},
		compopt -o nospace
		mapfile -t COMPREPLY < <(compgen -P "$done" -W "$options" -- "${current##*,}")
	elif [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '-o --foreground --debug --help --version' -- "$current")
	else
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$current")
	fi
}
complete -F _gfsmount gfsmount
