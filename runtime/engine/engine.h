/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one face that hooks call. A hook's body has one shape:
 *
 *     struct tpck_thread *self = tpck_engine_enter();
 *     if (!self)
 *             return real(...);
 *     if (tpck_engine_before(self, &call) == TPCK_GO_RUN)
 *             result = real(...);
 *     tpck_engine_after(self, &call);
 *     tpck_engine_leave(self);
 *     return result;
 *
 * Nothing here fails towards the application: what cannot be followed is said in one line and
 * means less checkpointing.
 */
#ifndef TPCK_RUNTIME_ENGINE_ENGINE_H
#define TPCK_RUNTIME_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/asks.h"
#include "runtime/base/settings.h"
#include "runtime/infer/infer.h"
#include "runtime/track/device.h"
#include "runtime/track/streams.h"
#include "runtime/track/threads.h"

struct tpck_layout;

enum tpck_go {
	TPCK_GO_RUN,      /* make the real call */
	TPCK_GO_ANSWERED, /* running forward: do not; the result is success */
	TPCK_GO_READ,     /* a kernel: tell its parameters by tpck_engine_parameters(), then make the real call */
};

/* One device operation. */
struct tpck_call {
	struct tpck_token token;
	tpck_stream_handle stream;
	const void *content;       /* host bytes that are uploaded, or NULL */
	uint64_t places[2];        /* device addresses that it reads or writes, or 0 */
	uint64_t numbers, addresses; /* of a launch: digests of the numbers, and of the addresses of followed memory, among its parameters; else 0 */
	bool orders;               /* an allocation call: the token is not fed to inference */
	/* the engine's; set by tpck_engine_before() */
	bool boundary_after, gated;
};

/* ---- life ---- */
/* At load: reads settings and, where a resume may be on offer, asks the agent. `arguments`: main()'s. */
void tpck_engine_start(const char *library_path, char *const *arguments);
/* A context exists: the device can be touched. Once; later calls do nothing. */
void tpck_engine_device(const struct tpck_device *device);
/* At normal exit with this status. */
void tpck_engine_end(int status);
/* In a forked child: nothing but flags. */
void tpck_engine_forked(void);

/* ---- guard ---- */
extern _Atomic uint32_t tpck_engine_mode_now __attribute__((visibility("hidden"))); /* enum tpck_mode; the engine's */
extern _Atomic bool tpck_engine_clocks_moved __attribute__((visibility("hidden")));
/* NULL: pass through (off, a thread of ours, or a call from inside a call). */
static inline struct tpck_thread *tpck_engine_enter(void)
{
	struct tpck_thread *self;

	if (__builtin_expect(!atomic_load_explicit(&tpck_engine_mode_now, memory_order_acquire), 0))
		return NULL;
	self = tpck_thread_self();
	if (__builtin_expect(!self || self->depth, 0))
		return NULL;
	self->depth = 1;
	return self;
}
static inline void tpck_engine_leave(struct tpck_thread *self)
{
	self->depth = 0;
}

/* ---- device operations ---- */
enum tpck_go tpck_engine_before(struct tpck_thread *self, struct tpck_call *call);
/* The parameters as cuLaunchKernel() gets them, or NULL; layout: what they hold, or NULL. */
void tpck_engine_parameters(const struct tpck_call *call, const struct tpck_layout *layout, void *const *parameters);
void tpck_engine_after(struct tpck_thread *self, struct tpck_call *call);
/* Something else was queued that freeing memory waits for: a function of the host's. After the real call. */
void tpck_engine_queued(void);
/* Between before (RUN) and after: the same operation is queued on this stream, too. */
void tpck_engine_also(struct tpck_thread *self, tpck_stream_handle stream);
/* A copy to the host, between before (RUN) and after: its bytes go into the log. With queued the
 * bytes arrive later and are taken by a copy of ours right behind. */
void tpck_engine_read_back(struct tpck_thread *self, const struct tpck_call *call, const void *host,
			   uint64_t device_address, size_t bytes, bool queued);
/* The same copy while running forward: fills host. */
void tpck_engine_deliver(struct tpck_thread *self, void *host, size_t bytes);
/* Around a real wait for a stream: what was queued on it before has arrived. */
void tpck_engine_waiting(struct tpck_thread *self);
void tpck_engine_waited(struct tpck_thread *self, tpck_stream_handle stream);
/* A thread has waited for the device, for whatever part of what it does. */
void tpck_engine_device_waited(void);

/* ---- memory ---- */
/* 0, -ENOMEM, or -ENOTSUP: the call is not ours, make the real one. stream as for tpck_stream_of();
 * ordered false: memory for use from anywhere. */
int tpck_engine_allocate(struct tpck_thread *self, uint64_t bytes, tpck_stream_handle stream, bool ordered,
			 uint64_t *address);
/* What freeing at once waits for, all that was queued before; true. Called first of all. */
bool tpck_engine_free_wait(const struct tpck_thread *self);
/* 0, or -ENOENT: not ours. */
int tpck_engine_free(struct tpck_thread *self, uint64_t address, tpck_stream_handle stream, bool ordered);
/* The block that holds address. False: not ours. */
bool tpck_engine_block(uint64_t address, uint64_t *base, uint64_t *bytes);
/* The same of a block that stands for memory of cuMemAlloc, which legacy IPC can share, not for a pool's. */
bool tpck_engine_block_of_its_own(uint64_t address, uint64_t *base, uint64_t *bytes);
/* The mapping of our own that holds address: memory with a handle of its own. False: there is none. */
bool tpck_engine_mapping(uint64_t address, uint64_t *start, uint64_t *bytes);
extern _Atomic uint64_t tpck_engine_arena_bytes __attribute__((visibility("hidden"))); /* 0: there is no arena */
static inline bool tpck_engine_is_device_memory(uint64_t address)
{
	return address - TPCK_ARENA_BASE < atomic_load_explicit(&tpck_engine_arena_bytes, memory_order_relaxed);
}
/* An allocator within the program hands out a part of device memory of so many bytes, or, negative, has it back. */
void tpck_engine_handed(uint64_t address, int64_t bytes);
/* The program works with graphs: what one was made for it may read again, whoever has it back. */
void tpck_engine_graphs(void);
/* Device memory that no block of the program's uses and that the library keeps for the next one. */
uint64_t tpck_engine_idle_memory(void);
/* Memory is out elsewhere: gives it back. Whether there was any, so that trying again may help. */
bool tpck_engine_give_back(void);
/* Device memory that the program reserves and maps itself: a reservation within the library's own (runtime/track/mappings.h; 0: there is
 * none to be had); it is given back (0, or -ENOENT where it is none of these, or -EBUSY); memory `handle` was mapped there; this device may read it now;
 * before it is unmapped. */
uint64_t tpck_engine_reserve(struct tpck_thread *self, const struct tpck_device *device, uint64_t bytes, uint64_t alignment);
int tpck_engine_unreserve(struct tpck_thread *self, uint64_t address, uint64_t bytes);
void tpck_engine_map(struct tpck_thread *self, uint64_t address, uint64_t bytes, uint64_t handle);
void tpck_engine_access(struct tpck_thread *self, uint64_t address, uint64_t bytes);
void tpck_engine_unmap(struct tpck_thread *self, uint64_t address, uint64_t bytes);
/* Pinned host memory of the driver's: it was given; before it is given back; the program asked for the device address of one within it, so that kernels
 * may write there. */
void tpck_engine_host_memory(const void *host, uint64_t bytes);
void tpck_engine_host_memory_ends(const void *host);
void tpck_engine_host_memory_shown(const void *host);
/* A kernel is about to be launched with a parameter that may be an address of such memory, or of memory that the program has registered. */
void tpck_engine_host_memory_launched(uint64_t address);
/* The same of memory that the program registers with the driver, and does not any more. */
void tpck_engine_host_memory_registered(const void *host, uint64_t bytes);
/* For `show`: a kernel is launched for the first time, whose parameters the driver does not tell (`bare`), or of which so many are compared. */
void tpck_engine_kernel(bool bare, uint32_t parameters, uint32_t compared);
/* Whether memory on this device is followed. */
bool tpck_engine_maps_here(int device);
/* Whatever the program has on this device, or on any for -1, now or later, can be used by another one as well. */
void tpck_engine_share_memory(int of, int with);
/* Before the driver destroys or resets a context: of the one that all is in no snapshots are taken any more, and the program's memory is given back, as the
 * driver would. What other contexts have is not touched. */
void tpck_engine_context_ends(const void *context);
/* Before a call that may destroy it: what is under way in it comes to its end. */
void tpck_engine_context_settle(const void *context);
/* A variable of a module; rank: which of those of that name it is, from 1, or 0 where modules tell in the order in which they are loaded. */
void tpck_engine_module_variable(const char *symbol, uint32_t rank, uint64_t address, uint64_t bytes);

/* ---- answers of the device ---- */
/* What a query that is not ready says: CUDA_ERROR_NOT_READY. */
enum { TPCK_NOT_READY = 600 };
/* While running forward fills *result and returns true. */
bool tpck_engine_query_answer(struct tpck_thread *self, int *result);
void tpck_engine_query_note(struct tpck_thread *self, int result);
bool tpck_engine_elapsed_answer(struct tpck_thread *self, float *milliseconds);
void tpck_engine_elapsed_note(struct tpck_thread *self, float milliseconds);
bool tpck_engine_meminfo_answer(struct tpck_thread *self, size_t *available, size_t *total);
void tpck_engine_meminfo_note(struct tpck_thread *self, size_t available, size_t total);

/* ---- chance ---- */
bool tpck_engine_chance_answer(struct tpck_thread *self, void *bytes, size_t count);
void tpck_engine_chance_note(struct tpck_thread *self, const void *bytes, size_t count);
/* The same of what a library draws for a connection, as for a handshake: it belongs to the thread's newest connection. *number is for the note. */
bool tpck_engine_drawn_answer(struct tpck_thread *self, void *bytes, size_t count, uint32_t *number);
void tpck_engine_drawn_note(struct tpck_thread *self, const void *bytes, size_t count, uint32_t number);

/* ---- clocks ----
 * Clocks of this machine and what the program is told they say may be apart: while running forward it is told what they said in the first
 * run, and from then on the clocks that count time since a start go on from there, as if the machine had been suspended
 * in between. CLOCK_REALTIME goes live with the truth. */
/* Whether they may be apart, or looks are recorded: else there is nothing to ask for. */
static inline bool tpck_engine_clocks(void)
{
	return atomic_load_explicit(&tpck_engine_mode_now, memory_order_relaxed) ||
	       atomic_load_explicit(&tpck_engine_clocks_moved, memory_order_relaxed);
}
/* What the calling thread is told of a clock that stands at ns. */
uint64_t tpck_engine_look(enum tpck_clock clock, uint64_t ns);
/* When the machine's clock stands at what the calling thread means by ns. Nobody waits for less than nothing. */
uint64_t tpck_engine_deadline(enum tpck_clock clock, uint64_t ns);

/* ---- readings ----
 * What the machine tells of itself: a thread that uses the device, and the main thread, is told the same while running forward
 * (replay/readings.h). */
/* NULL: what is told the calling thread is the machine's and in no record. Else to be left by tpck_engine_leave(). */
struct tpck_thread *tpck_engine_reading(void);
/* While running forward: what the first run was told. Its bytes stay until the thread's next reading. NULL: no answer. */
const void *tpck_engine_reading_answer(struct tpck_thread *self, uint32_t key, uint32_t *count);
/* The same, and the next answer is this one again. */
const void *tpck_engine_reading_ahead(struct tpck_thread *self, uint32_t key, uint32_t *count);
void tpck_engine_reading_note(struct tpck_thread *self, uint32_t key, const void *bytes, uint32_t count);
/* Of what is told once in a program's life, as at its start. */
void tpck_engine_reading_note_once(struct tpck_thread *self, uint32_t key, const void *bytes, uint32_t count);

/* ---- communicators that are made anew (engine/comm_rebuild.c) ---- */
/* While running forward what NCCL answered in the first run, and true; else false, and by then the process is live, or makes no difference. */
bool tpck_engine_nccl_answer(struct tpck_thread *self, void *answer, size_t bytes);
void tpck_engine_nccl_note(struct tpck_thread *self, const void *answer, size_t bytes);
/* A graph captures a call on the communicator of this index; whether one will before the process is live. */
void tpck_engine_nccl_captures(struct tpck_thread *self, uint32_t index);
bool tpck_engine_nccl_will_capture(uint32_t index);
/* Returns once the process is live: what the call is about is there then. */
void tpck_engine_nccl_await(struct tpck_thread *self);
/* Who makes what was only pretended to be made while running forward. Both are called once: `check` before the ranks agree to go live, and waits for
 * nobody: 0, or -errno with why; `make` behind that. The structure stays the caller's. */
struct tpck_engine_nccl_maker {
	int (*check)(char *why, size_t size);
	void (*make)(void);
};
void tpck_engine_nccl_maker(const struct tpck_engine_nccl_maker *maker);
/* All ranks of a communicator meet by an id that one of them tells the others, by the agents. Waiting for it, for so long, 0: as long as
 * ranks wait for each other: 0; -ENXIO, there is nobody who could tell; -ETIMEDOUT. */
void tpck_engine_id_tell(uint64_t name, const void *id);
int tpck_engine_id_await(uint64_t name, void *id, uint64_t limit_ns);
/* Whether the job has no other ranks. Whether the process has gone live at a snapshot's step. */
bool tpck_engine_alone(void);
bool tpck_engine_went_on(void);

/* ---- graphs ---- */
/* A node of a graph that is being captured. */
void tpck_engine_graph_node(uint64_t graph, const struct tpck_token *node);

/* ---- what cannot be resumed ---- */
/* The program did something that the log cannot repeat: later snapshots are marked so. Once a reason. */
void tpck_engine_unresumable(const char *why);
/* Something that the program relies on says that it failed: one line, and `show` has it. */
void tpck_engine_trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* There are no snapshots any more: one line says why, which is kept. */
void tpck_engine_uncaptured(const char *why);
/* The program takes memory there. On a second device no snapshot would hold it, nor wait for that device's streams: there
 * are no more of them. */
void tpck_engine_memory_on(int device);
/* A stream entered or left capture mode. */
void tpck_engine_stream_capture(int change);
/* The program is about to destroy a stream, which is still known. */
void tpck_engine_stream_ends(struct tpck_thread *self, tpck_stream_handle stream);
bool tpck_engine_forward(void);

#endif
