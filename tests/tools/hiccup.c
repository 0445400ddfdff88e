/*
 * hiccup - until SIGTERM, looks at the time its own thread has had on the CPU, again and again, and
 * then prints the longest step in microseconds.
 *
 * It does nothing else, so a step of milliseconds is time that a virtual CPU was not run by its
 * host, which the kernel here counts as work of whoever was on it. What a daemon's counter of work
 * shows cannot be smaller. Runs only where a CPU is idle, and takes nothing from others.
 */
#include "common/gx_env.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

static volatile sig_atomic_t stop;

static void on_term(int signal_number GX_UNUSED)
{
	stop = 1;
}

int main(void)
{
	struct sched_param none = {0};
	struct gx_env *env = gx_env_posix();
	int64_t last_ns, longest_ns = 0;

	signal(SIGTERM, on_term);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sched_setscheduler(0, SCHED_IDLE, &none) < 0) {
		perror("hiccup: SCHED_IDLE");
		return 1;
	}
	last_ns = gx_env_cpu_ns(env);
	while (!stop) {
		int64_t now_ns = gx_env_cpu_ns(env);

		longest_ns = GX_MAX(longest_ns, now_ns - last_ns);
		last_ns = now_ns;
	}
	printf("%lld\n", (long long)(longest_ns / 1000));
	return 0;
}
