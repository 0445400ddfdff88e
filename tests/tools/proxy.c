/*
 * proxy TARGET-PORT [FLIP] - a man in the middle: 127.0.0.1, any free port, to 127.0.0.1:TARGET.
 *
 * Prints its port, then carries one connection after the other, byte for byte. With FLIP, it
 * changes one bit in the FLIP-th byte (from 1) that a client sends. Ends with its standard input.
 */
#include "common/gx_num.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static int loopback(uint16_t port, struct sockaddr_in *ret_sa)
{
	*ret_sa = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	ret_sa->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Moves what is there; false at the end. */
static bool carry(int from, int to, uint64_t *seen, uint64_t flip)
{
	unsigned char space[65536];
	ssize_t n = recv(from, space, sizeof(space), 0);

	if (n <= 0)
		return false;
	if (flip > *seen && flip <= *seen + (uint64_t)n)
		space[flip - *seen - 1] ^= 0x10;
	*seen += (uint64_t)n;
	for (ssize_t sent = 0; sent < n;) {
		ssize_t m = send(to, space + sent, (size_t)(n - sent), MSG_NOSIGNAL);

		if (m <= 0)
			return false;
		sent += m;
	}
	return true;
}

/* False: standard input ended. */
static bool serve(int client, int server, uint64_t flip)
{
	struct pollfd fds[3] = {{.fd = client, .events = POLLIN},
				{.fd = server, .events = POLLIN},
				{.fd = 0, .events = POLLIN}};
	uint64_t seen = 0, back = 0;

	for (;;) {
		if (poll(fds, 3, -1) < 0 || fds[2].revents)
			return false;
		if (fds[0].revents && !carry(client, server, &seen, flip))
			return true;
		if (fds[1].revents && !carry(server, client, &back, 0))
			return true;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in here, there;
	socklen_t bytes = sizeof(here);
	uint64_t port, flip = 0;
	int listener;

	if (argc < 2 || gx_parse_u64(argv[1], &port) < 0 || port > UINT16_MAX ||
	    (argc > 2 && gx_parse_u64(argv[2], &flip) < 0)) {
		fprintf(stderr, "usage: proxy TARGET-PORT [FLIP]\n");
		return 2;
	}
	listener = loopback(0, &here);
	if (listener < 0 || bind(listener, (struct sockaddr *)&here, sizeof(here)) < 0 ||
	    listen(listener, 16) < 0 || getsockname(listener, (struct sockaddr *)&here, &bytes) < 0)
		return 1;
	printf("%u\n", ntohs(here.sin_port));
	fflush(stdout);
	for (;;) {
		struct pollfd fds[2] = {{.fd = listener, .events = POLLIN},
					{.fd = 0, .events = POLLIN}};
		int client, server;
		bool more;

		if (poll(fds, 2, -1) < 0 || fds[1].revents)
			return 0;
		client = accept(listener, NULL, NULL);
		server = loopback((uint16_t)port, &there);
		if (client < 0 || server < 0)
			return 1;
		more = connect(server, (struct sockaddr *)&there, sizeof(there)) < 0 ||
		       serve(client, server, flip);
		close(client);
		close(server);
		if (!more)
			return 0;
	}
}
