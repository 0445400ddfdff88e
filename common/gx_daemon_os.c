#include "common/gx_daemon_os.h"
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASSWD_BYTES 16384

void gx_forbid_core_dumps(void)
{
	const char *wanted = getenv("GX_COREDUMP");
	struct rlimit limit;

	if (wanted != NULL && strcmp(wanted, "1") == 0)
		return;
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	/* Only the soft limit: programs the daemon starts may raise it again. */
	if (getrlimit(RLIMIT_CORE, &limit) == 0) {
		limit.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &limit);
	}
}

/* The usual soft limit, 1024, is for programs that use select(); connections have their own. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

void gx_daemon_harden(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGPIPE, &ignore, NULL);
	umask(027);
	gx_forbid_core_dumps();
	raise_descriptor_limit();
}

/* The starter's side: waits for the daemon's byte. */
static int await_status(const char *program, bool silent, int fd, pid_t child)
{
	unsigned char byte;
	ssize_t n;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	close(fd);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		continue;
	if (n == 1 && byte != 0 && !silent)
		fprintf(stderr, "%s: the daemon did not start\n", program);
	if (n == 1)
		return byte;
	fprintf(stderr, "%s: the daemon died before it was ready\n", program);
	return 1;
}

int gx_daemon_fork(const char *program, bool silent, int *ret_status_fd, int *ret_code)
{
	int fds[2];
	pid_t child;
	int r;

	fflush(NULL); /* or both processes would write what is buffered */
	if (pipe2(fds, O_CLOEXEC) < 0) {
		r = gx_errno();
		fprintf(stderr, "%s: cannot make a pipe: %s\n", program, gx_strerror(r));
		return r;
	}
	child = fork();
	if (child < 0) {
		r = gx_errno();
		close(fds[0]);
		close(fds[1]);
		fprintf(stderr, "%s: cannot fork: %s\n", program, gx_strerror(r));
		return r;
	}
	if (child > 0) {
		close(fds[1]);
		*ret_code = await_status(program, silent, fds[0], child);
		return 1;
	}
	close(fds[0]);
	/* The second fork gives up being session leader, so no terminal can become ours. */
	if (setsid() < 0)
		_exit(1);
	child = fork();
	if (child != 0)
		_exit(child < 0 ? 1 : 0);
	*ret_status_fd = fds[1];
	return 0;
}

void gx_daemon_null_stdio(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return;
	for (int i = 0; i < 3; i++)
		(void)dup2(fd, i);
	if (fd > 2)
		close(fd);
}

static void give_file(const char *path, uid_t uid, gid_t gid)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return;
	/* Failing only means that a later reopen fails, and that is reported then. */
	(void)!fchown(fd, uid, gid);
	close(fd);
}

/* True if nothing of the old user is left and there is no way back. */
static bool is_only(uid_t uid, gid_t gid)
{
	uid_t ruid, euid, suid;
	gid_t rgid, egid, sgid;

	if (getresuid(&ruid, &euid, &suid) < 0 || getresgid(&rgid, &egid, &sgid) < 0)
		return false;
	if (ruid != uid || euid != uid || suid != uid || rgid != gid || egid != gid || sgid != gid)
		return false;
	return uid == 0 || setuid(0) < 0;
}

int gx_daemon_become(const char *user, const char *log_file)
{
	struct passwd entry, *found = NULL;
	char text[PASSWD_BYTES];
	int r = getpwnam_r(user, &entry, text, sizeof(text), &found);

	if (r != 0)
		return -r;
	if (found == NULL)
		return -ENOENT;
	if (geteuid() == entry.pw_uid)
		return 0;
	if (geteuid() != 0)
		return -EPERM;
	if (log_file != NULL)
		give_file(log_file, entry.pw_uid, entry.pw_gid);
	/* Groups first: once the user is changed we may not change them any more. */
	if (initgroups(user, entry.pw_gid) < 0 || setgid(entry.pw_gid) < 0 ||
	    setuid(entry.pw_uid) < 0)
		return gx_errno();
	if (!is_only(entry.pw_uid, entry.pw_gid))
		return -EPERM;
	gx_forbid_core_dumps(); /* a change of user resets the flag */
	return 0;
}

void gx_daemon_notify(const char *message)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	size_t bytes;
	int fd;

	if (path == NULL || (path[0] != '/' && path[0] != '@'))
		return;
	bytes = strlen(path);
	if (bytes >= sizeof(addr.sun_path))
		return;
	memcpy(addr.sun_path, path, bytes);
	if (path[0] == '@') /* an abstract name */
		addr.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* Best effort: a manager that does not listen is not our failure. */
	(void)!sendto(fd, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&addr,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
	close(fd);
}
