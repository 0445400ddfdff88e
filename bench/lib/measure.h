/*
 * measure.h - the work that is measured: each kind with a raw side and our own.
 *
 * A side opens its connections, warms up, works for bench.round_ns and closes.
 * Both sides of a kind are shaped alike: the same threads, the same order of
 * sends and receives, the same number of messages under way.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench/lib/ours.h"
#include "bench/lib/raw.h"

#define SMALL_BYTES 64u
#define MIB (1024u * 1024)
#define LARGEST_BYTES (64u * MIB)
#define SAMPLES_MAX (1u << 20)

/* What the sides work with. */
struct bench {
	struct ours ours;
	struct raw_tls tls;
	struct raw_server raw;
	SSL_CTX *psk_server, *psk_client;
	unsigned char *payload; /* LARGEST_BYTES */
	uint32_t *samples;      /* SAMPLES_MAX, nanoseconds */
	int64_t round_ns;       /* how long one side of a round runs */
};

/* What one side of one round came to. */
struct result {
	double p50_us, p99_us;
	double per_sec; /* calls */
};

/* What both sides of a test do. */
struct job {
	enum raw_kind raw_kind;
	enum ours_kind own_kind;
	bool threaded; /* own server: one thread per connection */
	uint64_t bytes;
};

typedef int (*side_fn)(struct bench *b, const struct job *job, struct result *ret_result);

/* One call after the other; large ones get a short answer. */
int side_raw_calls(struct bench *b, const struct job *job, struct result *ret_result);
int side_own_calls(struct bench *b, const struct job *job, struct result *ret_result);
/* 8 small calls in flight on one connection. */
int side_raw_window(struct bench *b, const struct job *job, struct result *ret_result);
int side_own_window(struct bench *b, const struct job *job, struct result *ret_result);
/* 8 connections, a client thread each, against one server thread. */
int side_raw_crowd(struct bench *b, const struct job *job, struct result *ret_result);
int side_own_crowd(struct bench *b, const struct job *job, struct result *ret_result);
/* Connect, handshakes, first answer, close. */
int side_raw_opens(struct bench *b, const struct job *job, struct result *ret_result);
int side_own_opens(struct bench *b, const struct job *job, struct result *ret_result);
/* A TLS handshake in memory: certificates against a PSK. */
int side_raw_shakes(struct bench *b, const struct job *job, struct result *ret_result);
int side_own_shakes(struct bench *b, const struct job *job, struct result *ret_result);

#endif
