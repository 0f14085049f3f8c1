/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's objects and what each part of it offers the others; everything behind the API lives under one lock unless said otherwise. */
#ifndef TESTS_SIM_DRIVER_SIM_H
#define TESTS_SIM_DRIVER_SIM_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

/* The entry points that take a stream exist twice: with the legacy and with the per-thread default stream for handle 0. */
#define SIM_LEGACY(s) ((s) ? (s) : CU_STREAM_LEGACY)
#define SIM_PTDS(s) ((s) ? (s) : CU_STREAM_PER_THREAD)

#define SIM_PAGE_SHIFT 21
#define SIM_PAGE (1ull << SIM_PAGE_SHIFT)

/* ---- settings (settings.c) ---- */
struct sim_override {
	char part[64];
	uint64_t ns;
};

#define SIM_DEVICES 8

struct sim_settings {
	int devices;               /* that this process sees */
	int physical[SIM_DEVICES]; /* which they are */
	uint64_t memory;           /* of each */
	uint64_t slice_ns; /* of a copy engine; 0: first come, first served */
	uint64_t together_ns; /* kernels that take no longer than that in all may begin and end as one */
	uint64_t load_ns, ask_ns; /* that a module's code, and its variables, take to load */
	double copy_bytes_per_ns; /* 0: as fast as it goes */
	uint64_t kernel_ns;
	struct sim_override kernel_override[16];
	int n_overrides;
	bool execute;
	bool waiting_allocations;
	bool refuse_hint, move_hint, no_memops, dead_memops, pageable_access, no_param_info;
	bool helpful_straddle, helpful_loading, helpful_queues, helpful_pageable, helpful_channels, helpful_memory, helpful_hints;
	unsigned connections; /* channels of a kind and context */
	const char *waits; /* the file that is told who waits */
	int queue;  /* operations that a stream takes */
	int fresh;  /* the byte that new memory is filled with; -1: as it comes */
	bool eager; /* CUDA_MODULE_LOADING=EAGER: kernels are there before they are launched */
	char oom_thread[16];
	uint64_t oom_at, launch_at, sticky_at, lost_at, drop_at, stall_at, stall_ns;
	uint64_t nccl_stall_at, nccl_stall_ns, nccl_error_at;
	int nccl_stall_rank, nccl_error_rank; /* of the job; -1 for all */
};

extern struct sim_settings sim_settings;
void sim_settings_read(void);
/* Counts one event of a kind; true when it is the one that SIMGPU_FAULT asked for. */
bool sim_fault_alloc(void);
/* The calling thread is one whose allocations fail. */
bool sim_fault_thread(void);
enum sim_fault { SIM_FAULT_NONE, SIM_FAULT_STICKY, SIM_FAULT_LOST, SIM_FAULT_DROP, SIM_FAULT_STALL, SIM_FAULT_ERROR };
enum sim_fault sim_fault_launch(void);
/* The same for kernels that exchange data with others, of a rank of the job. */
enum sim_fault sim_fault_exchange(int rank);
uint64_t sim_now(void);
uint64_t sim_kernel_ns(const char *name);
/* The calling thread waits for the device, and where it does not block hardware's driver spins. With the lock held. */
void sim_note_wait(bool blocks);
/* At the end of the process: what SIMGPU_WAITS is told. */
void sim_settings_end(void);

/* ---- device process (remote.c); own lock ---- */
int sim_remote_start(int vram_fd);
void sim_remote_stop(void);
int sim_remote_map_vram(uint64_t va, uint64_t bytes, uint64_t offset, int prot);
int sim_remote_map_file(uint64_t va, uint64_t bytes, uint64_t offset, int prot, int fd);
int sim_remote_unmap(uint64_t va, uint64_t bytes);
int sim_remote_load(const void *object, uint64_t bytes, uint64_t *id);
/* An image without code: kernels to pseudo-execute; with `ruled` only if any of them has a rule. */
int sim_remote_describe(const void *image, uint64_t bytes, bool ruled, uint64_t *id);
int sim_remote_unload(uint64_t id);
int sim_remote_bind(uint64_t id, const char *name, uint64_t va);
int sim_remote_fill(uint64_t id, const char *name, uint64_t va, uint64_t bytes);
struct sim_launch;
/* Runs up to SIM_LAUNCH_RING kernels one after the other. */
CUresult sim_remote_launch(const struct sim_launch *const *list, int n);
bool sim_remote_lost(void);

/* ---- physical memory and address space (vram.c) ---- */
struct sim_phys {
	int refs;    /* handles and mappings */
	int handles; /* cuMemCreate, import and retain, less cuMemRelease */
	uint64_t bytes;
	uint64_t pages;
	int device;
	uint32_t *granule; /* of the memory file */
	bool foreign;      /* another process's file, or its own once more, with what follows; otherwise this process's */
	int fd;            /* that file */
	int lent_by;       /* tells the exporter, by being open, that the memory is in use; or -1 */
	char *alias;       /* of its own, in one piece */
	int *lent;         /* descriptors that hang up when nobody has an export any more */
	int n_lent;
	CUmemAllocationProp prop;
	uint32_t magic;
};

struct sim_page {
	char *alias; /* where the copy engines see it; NULL: nothing is mapped */
	uint8_t prot;
};

int sim_vram_start(void);
/* As ftruncate(). */
int sim_memory_size(int fd, uint64_t bytes);
uint64_t sim_vram_free_bytes(int device);
struct sim_phys *sim_phys_create(int device, uint64_t bytes);
/* Memory in granules of the file `fd`, which it takes over, also where it fails. */
struct sim_phys *sim_phys_foreign(int fd, const uint32_t *granule, uint64_t pages);
/* A descriptor that stands for the memory, in any process and for longer than this one lives; or -errno. */
int sim_phys_export(struct sim_phys *p);
struct sim_phys *sim_phys_import(int fd);
/* The memory file of this process. */
int sim_vram_fd(void);
void sim_phys_unref(struct sim_phys *p);
/* Reserves host address space without access; 0 if the hint cannot be had and is required. */
uint64_t sim_va_reserve(uint64_t bytes, uint64_t align, uint64_t hint, bool exact);
void sim_va_release(uint64_t va, uint64_t bytes);
int sim_va_map(uint64_t va, uint64_t bytes, struct sim_phys *p, uint64_t offset, int prot);
/* Records the mapping without access (cuMemMap before cuMemSetAccess). */
void sim_va_note(uint64_t va, uint64_t bytes, struct sim_phys *p, uint64_t offset);
int sim_va_unmap(uint64_t va, uint64_t bytes);
struct sim_page *sim_page(uint64_t va);
bool sim_is_device_va(uint64_t va);

/* ---- what is allocated where (alloc.c) ---- */
struct sim_pool_block;
enum sim_alloc_kind { SIM_ALLOC_DEVICE, SIM_ALLOC_POOL, SIM_ALLOC_VMM, SIM_ALLOC_HOST, SIM_ALLOC_REGISTERED, SIM_ALLOC_MANAGED, SIM_ALLOC_VARIABLE, SIM_ALLOC_GRAPH, SIM_ALLOC_IPC };

struct sim_alloc {
	uint64_t va;
	uint64_t bytes;     /* as asked for */
	uint64_t reserved;  /* as taken */
	enum sim_alloc_kind kind;
	unsigned flags;
	uint64_t id;
	struct sim_ctx *ctx;
	int device; /* it belongs to; of host memory, the one that was current */
	struct sim_phys *phys;
	uint64_t phys_offset;
	int prot; /* of any device; kernels all run in one address space */
	uint8_t device_prot[SIM_DEVICES]; /* of mappings that were made explicitly */
	struct sim_pool *pool;
	struct sim_pool_block *block;
	struct sim_graph_memory *graph; /* of a captured allocation */
	int fd;
	bool sync_memops;
	struct sim_shared *shared;  /* what other processes find behind its handle */
	struct sim_opened *opened;  /* of another process's: by which handle, how often */
};

struct sim_alloc *sim_alloc_add(uint64_t va, uint64_t bytes, enum sim_alloc_kind kind);
struct sim_alloc *sim_alloc_find(uint64_t va); /* containing va */
struct sim_alloc *sim_alloc_next(uint64_t va);  /* the first at or after va */
void sim_alloc_remove(struct sim_alloc *a);
CUresult sim_heap_alloc(int device, uint64_t bytes, enum sim_alloc_kind kind, struct sim_alloc **out);
CUresult sim_heap_free(struct sim_alloc *a);
/* Page-locked and managed memory. */
CUresult sim_host_free(struct sim_alloc *a);
/* The memory in which it lies, and where. */
struct sim_phys *sim_heap_phys(const struct sim_alloc *a, uint64_t *offset);
/* Page-locked memory as the copy engines care: the whole range lies in one pinned, registered or managed allocation. */
bool sim_is_pinned(const void *p, uint64_t bytes);
/* Some of it lies in such an allocation. */
bool sim_is_partly_pinned(uint64_t va, uint64_t bytes);
void sim_alloc_free_all(struct sim_ctx *ctx);

/* ---- modules and kernels (module.c) ---- */
#define SIM_KERNEL_MAGIC 0x4b53494du
struct sim_module;
struct sim_kernel {
	uint32_t magic;
	uint32_t index;
	struct sim_module *module;
	const char *name;
	uint32_t n_params;
	uint32_t param_bytes;
	const struct sim_image_param *params;
	int attribute_shared;
	int carveout;
	bool exchange; /* with other ranks: the exchange engine's */
	bool loaded[SIM_DEVICES]; /* it was launched there */
	uint64_t ns; /* modelled duration */
};

/* Before its first launch on a device, unless that is captured. */
void sim_load(struct sim_kernel *k, int device);
/* What a module has is loaded when it is wanted first: its code and, apart from that, its variables. */
enum sim_loaded { SIM_AWAY, SIM_COMING, SIM_THERE };
void sim_load_part(enum sim_loaded *part, int device, uint64_t ns);

struct sim_variable {
	const char *name;
	uint64_t bytes;
	bool constant;
	struct sim_alloc *alloc[SIM_DEVICES];
};

#define SIM_MODULE_MAGIC 0x4d53494du
struct sim_module {
	uint32_t magic;
	uint64_t remote[SIM_DEVICES]; /* 0: not there yet; variables are a device's own, so is code that refers to them */
	char *object; /* of a library, for devices that come later */
	uint64_t object_bytes;
	char *image;
	struct sim_kernel *kernel;
	uint32_t n_kernels;
	struct sim_variable *variable;
	uint32_t n_variables;
	bool library;
	bool nowhere; /* the device process has no part in it */
	enum sim_loaded code[SIM_DEVICES], data[SIM_DEVICES];
};
struct sim_kernel *sim_kernel_check(const void *handle);
/* A library is on every device that uses it. */
CUresult sim_module_on(struct sim_module *m, int device);
/* An image without code (image.h) of the vendor's fat binary or cubin (cubin.c); the caller frees it. */
CUresult sim_cubin_image(const void *data, char **image);
/* The same of a PTX text, with the text itself as the code (ptx.c). */
CUresult sim_ptx_image(const char *text, size_t bytes, char **image);

/* ---- work: what a stream executes and a graph node describes (work.c) ---- */
struct sim_launch {
	struct sim_kernel *kernel;
	uint32_t grid[3], block[3], shared;
	uint32_t param_bytes;
	char *params;
	int device;
	bool cooperative;
};

struct sim_rect {
	uint64_t dst, src; /* addresses, host or device */
	uint64_t dst_pitch, src_pitch, dst_slice, src_slice;
	uint64_t width, height, depth;
	uint8_t dst_kind, src_kind; /* enum sim_place */
	bool need_dst, need_src;    /* the call says that this side is device memory */
};
enum sim_place { SIM_PAGEABLE, SIM_PINNED, SIM_DEVICE };

enum sim_work_kind {
	SIM_WORK_EMPTY,
	SIM_WORK_KERNEL,
	SIM_WORK_COPY,
	SIM_WORK_MEMSET,
	SIM_WORK_HOST,
	SIM_WORK_CALLBACK,
	SIM_WORK_WAIT_VALUE,
	SIM_WORK_WRITE_VALUE,
	SIM_WORK_EVENT_RECORD,
	SIM_WORK_EVENT_WAIT,
	SIM_WORK_ALLOC,
	SIM_WORK_FREE,
	SIM_WORK_CHILD,
	SIM_WORK_REACH, /* a ticket of an event that several processes have */
	SIM_WORK_AWAIT,
};

struct sim_work {
	enum sim_work_kind kind;
	union {
		struct sim_launch launch;
		struct {
			struct sim_rect rect;
			char *staging;
		} copy;
		struct {
			uint64_t dst, pitch, width, height;
			uint32_t value, element;
		} set;
		struct {
			CUhostFn fn;
			void *data;
		} host;
		struct {
			CUstreamCallback fn;
			void *data;
			CUstream stream;
		} callback;
		struct {
			uint64_t address, value;
			unsigned flags;
			bool wide;
		} value;
		struct sim_event *event;
		struct {
			uint64_t va, bytes;
			struct sim_graph_memory *graph;
		} memory;
		struct sim_graph *child;
		struct {
			struct sim_shared *event;
			uint64_t number;
		} ticket;
	} u;
};

struct sim_op;
void sim_work_copy(struct sim_work *to, const struct sim_work *from);
void sim_work_clear(struct sim_work *w);
/* Kernels that may go to the device in one go: no long modelled time, no faults, small parameters. `model` grows by their time. */
bool sim_work_batches(const struct sim_work *w);
CUresult sim_work_do_batch(struct sim_op *const *op, int n, uint64_t *model);
/* Does the work, without the lock. Returns what becomes of the context. */
CUresult sim_work_do(struct sim_work *w, uint64_t *model_ns);
/* Addresses are checked when the call is made, as the driver's are. */
CUresult sim_copy_prepare(struct sim_rect *r);
/* What a memory wait, or one for another process's event, waits for. */
bool sim_wait_holds(const struct sim_work *w);
/* Copies between addresses that a kernel could use. False: nothing is mapped there. */
bool sim_device_read(void *to, uint64_t va, uint64_t bytes);
bool sim_device_write(uint64_t va, const void *from, uint64_t bytes);

/* ---- exchanges between ranks (exchange.c); of one thread, without the lock but for the first ---- */
struct sim_exchange;
struct sim_exchange *sim_exchange_begin(const struct sim_launch *l, CUresult *r);
/* What of it is possible now; `moved` when that was something. True when it is over. */
bool sim_exchange_step(struct sim_exchange *x, bool *moved, CUresult *r);
/* The communicator's end that it uses: what comes later through the same one has to wait. */
const void *sim_exchange_port(const struct sim_exchange *x);
int sim_exchange_job_rank(const struct sim_exchange *x);
/* What the library tells by ncclCommGetAsyncError(). */
void sim_exchange_fail(struct sim_exchange *x);
/* The exchange's communicator is aborted. */
bool sim_exchange_stopped(const struct sim_exchange *x);
void sim_exchange_end(struct sim_exchange *x);
/* Reduces `n` bytes of elements: what `from` says with what is in `acc`, which becomes the result (reduce.c). */
void sim_reduce_first(void *acc, const void *from, uint64_t n, uint32_t type, uint32_t op, uint64_t scalar);
void sim_reduce_next(void *acc, const void *from, uint64_t n, uint32_t type, uint32_t op, uint64_t scalar);
void sim_reduce_last(void *acc, uint64_t n, uint32_t type, uint32_t op, uint32_t ranks);
/* What the average of floating point is scaled by, as a number of the type. */
uint64_t sim_reduce_share(uint32_t type, uint32_t ranks);

/* ---- memory and events of other processes (ipc.c) ---- */
/* This process's allocation is gone: nobody opens it any more. */
void sim_ipc_forget(struct sim_alloc *a);
void sim_ipc_close(struct sim_alloc *a);
/* An event that several processes have, with the lock held. */
struct sim_shared;
struct sim_shared *sim_shared_event_new(void);
void sim_shared_ref(struct sim_shared *s);
void sim_shared_unref(struct sim_shared *s);
/* A record takes a ticket, which is reached when its work is done; the event stands for the last ticket. 0: never recorded. */
uint64_t sim_ticket_take(struct sim_shared *s);
uint64_t sim_ticket_last(struct sim_shared *s);
void sim_ticket_reach(struct sim_shared *s, uint64_t ticket);
bool sim_ticket_reached(struct sim_shared *s, uint64_t ticket);

/* ---- launch sequences (record.c); with the lock held ---- */
struct sim_graph;
void sim_record_start(const char *path);
void sim_record(const struct sim_work *w, uint64_t stream);
void sim_record_graph(const struct sim_graph *g, uint64_t stream);

/* ---- engines (engine.c) ---- */
enum sim_engine { SIM_ENGINE_NONE, SIM_ENGINE_COMPUTE, SIM_ENGINE_H2D, SIM_ENGINE_D2H, SIM_ENGINE_CALLBACK, SIM_ENGINE_POLL, SIM_ENGINE_EXCHANGE, SIM_ENGINES };

struct sim_op {
	struct sim_work work;
	int refs;
	int waits; /* unfinished operations it depends on */
	bool done, queued, counted;
	uint64_t ready_ns, end_ns;
	uint64_t left_ns; /* of a copy that others came between */
	struct sim_op **next; /* operations that depend on it */
	int n_next, cap_next;
	struct sim_op *queue_next;
	struct sim_stream *stream;
	struct sim_op *channel_next; /* what its channel comes to once it has passed */
	bool passed;                 /* it has what it waits for, and its channel goes on */
	int device; /* whose waits it holds up */
	uint64_t order; /* of its submission */
	struct sim_op *older, *younger; /* unfinished ones, in that order */
};

extern pthread_mutex_t sim_lock;
extern pthread_cond_t sim_progress;
extern int sim_room_waiters; /* threads that wait for room in a stream's queue */ /* something finished */
int sim_engine_start(void);
struct sim_op *sim_op_new(void);
void sim_op_ref(struct sim_op *op);
void sim_op_unref(struct sim_op *op);
void sim_op_after(struct sim_op *op, struct sim_op *before);
/* Hands over the caller's reference after all dependencies are named. */
void sim_op_submit(struct sim_op *op);
void sim_op_wait(struct sim_op *op);
/* Which of the engines carries it out. */
enum sim_engine sim_op_engine(const struct sim_op *op);
/* Waits for all that was submitted to the device so far: by the current context, if that is on it. */
void sim_wait_device(int device);
CUresult sim_sticky(void);
void sim_set_sticky(CUresult r);

/* ---- contexts (context.c) ---- */
#define SIM_CTX_MAGIC 0x5853494du
/* Most channels of a kind; kinds: kernels and whatever has no engine, copies to the device, copies from it. */
#define SIM_CHANNELS 32
#define SIM_CHANNEL_KINDS 3
struct sim_ctx {
	uint32_t magic;
	bool primary, alive;
	int device;
	unsigned peers; /* devices whose memory it may use, as bits */
	unsigned flags;
	int refs;
	uint64_t id;
	struct sim_stream *legacy;
	struct sim_stream *streams; /* all of them, the default ones included */
	unsigned streams_made;
	struct sim_op *channel[SIM_CHANNEL_KINDS][SIM_CHANNELS]; /* the last that came through each */
	size_t limit[16];
	struct sim_ctx *next;
};

struct sim_ctx *sim_current(void);
/* Of the current context, 0 if there is none. */
int sim_device(void);
/* Checks that every call makes: initialised, not in a forked child, not in a callback, no sticky error, a context. Takes the lock on success. */
CUresult sim_enter(void);
CUresult sim_enter_no_ctx(void);
void sim_leave(void);
/* While a call waits for the device it may hold what other threads' calls for that device need: they wait, too, but those that wait for the device
 * anyway. Such a wait is between the two. */
void sim_hold(int device);
void sim_let_go(int device);
/* As sim_wait_device(), and other calls for the device wait for it. */
void sim_wait_device_held(int device);
/* In a call that makes or registers memory: it may wait for the device. */
void sim_allocating(void);
#define SIM_ENTER() \
	do { \
		CUresult entered = sim_enter(); \
		if (entered != CUDA_SUCCESS) \
			return entered; \
	} while (0)
static inline CUresult sim_return(CUresult r)
{
	sim_leave();
	return r;
}
extern __thread bool sim_in_callback;
void sim_ctx_stop(struct sim_ctx *c);
/* A context of the one device was given access to what cuMemAlloc makes on the other. */
bool sim_is_peer(int device, int of);

/* ---- streams and events (stream.c, event.c) ---- */
#define SIM_STREAM_MAGIC 0x5253494du
struct sim_stream {
	uint32_t magic;
	struct sim_ctx *ctx;
	unsigned flags;
	int priority;
	uint64_t id;
	struct sim_op *last;
	int depth;
	unsigned channel, kind; /* kind: of its last operation */
	bool is_default, destroyed;
	struct sim_capture *capture;
	struct sim_node **frontier; /* while capturing: what the next node depends on */
	int n_frontier;
	struct sim_stream *next;
};

#define SIM_EVENT_MAGIC 0x5653494du
struct sim_event {
	uint32_t magic;
	unsigned flags;
	struct sim_ctx *ctx;
	struct sim_op *op; /* the last record, or NULL */
	bool recorded;
	uint64_t ns;
	struct sim_shared *shared; /* of CU_EVENT_INTERPROCESS */
	struct sim_capture *capture; /* recorded inside a capture */
	uint64_t capture_id;
	struct sim_node **node;
	int n_node;
};

struct sim_stream *sim_stream_new(struct sim_ctx *c, unsigned flags, int priority);
void sim_stream_free(struct sim_stream *s);
CUresult sim_stream_get(CUstream h, struct sim_stream **out);
struct sim_event *sim_event_check(CUevent e);
/* Takes over `shared`, also where it fails. */
struct sim_event *sim_event_new(unsigned flags, struct sim_shared *shared);
/* Puts work on a stream or, while it captures, into its graph. Takes over what `w` owns. `out` gets a reference to the operation, or NULL. */
CUresult sim_submit(struct sim_stream *s, struct sim_work *w, struct sim_op **out);
/* The operation with the stream's dependencies named, not submitted yet. */
struct sim_op *sim_stream_op(struct sim_stream *s, struct sim_work *w);
void sim_stream_push(struct sim_stream *s, struct sim_op *op);
/* Puts an operation that is not submitted yet behind what came through the stream's channel before. */
void sim_stream_pass(struct sim_stream *s, struct sim_op *op);
/* Waits while the stream's queue is full. */
CUresult sim_stream_room(struct sim_stream *s);
/* Like the driver, drop memory that pools hold above their threshold when something was synchronised. */
void sim_pools_trim(void);
struct sim_pool;
/* The pool's memory is that device's to use. */
bool sim_pool_lets(const struct sim_pool *p, int device);

/* ---- capture (capture.c) ---- */
struct sim_capture {
	struct sim_graph *graph;
	CUstreamCaptureMode mode;
	pthread_t thread;
	struct sim_stream *origin;
	bool invalid;
	uint64_t id;
	struct sim_capture *next;
	int refs;
	bool ended;
};

/* Calls that could synchronise with, or be missed by, a capture under way. */
CUresult sim_capture_unsafe(void);
/* Using the legacy stream, or waiting for a stream, while a capture depends on it. */
CUresult sim_capture_implicit(struct sim_stream *s);
CUresult sim_capture_add(struct sim_stream *s, struct sim_work *w, struct sim_node **out);
CUresult sim_capture_record(struct sim_stream *s, struct sim_event *e);
CUresult sim_capture_wait(struct sim_stream *s, struct sim_event *e);
void sim_capture_invalidate(struct sim_capture *c);
void sim_capture_unref(struct sim_capture *c);

/* ---- graphs (graph.c) ---- */
#define SIM_GRAPH_MAGIC 0x4753494du
struct sim_node {
	uint32_t magic;
	struct sim_graph *graph;
	struct sim_work work;
	struct sim_node **dep;
	int n_dep;
	int index;
	bool disabled;
	struct sim_node *origin; /* in a clone: the node it was made from */
	void **param_list; /* what KernelNodeGetParams hands out */
};

struct sim_graph {
	uint32_t magic;
	struct sim_node **node;
	int n_node, cap_node;
	struct sim_capture *capture; /* being built by a capture */
	bool exposed;                /* the caller holds it as a handle */
};

struct sim_exec {
	uint32_t magic;
	struct sim_graph *graph; /* private clone */
	struct sim_op *last;
	unsigned long long flags;
};
struct sim_graph *sim_graph_new(void);
struct sim_graph *sim_graph_clone(const struct sim_graph *g);
void sim_graph_free(struct sim_graph *g);
CUresult sim_node_new(struct sim_graph *g, struct sim_node **deps, int n, struct sim_work *w, struct sim_node **out);

/* ---- pools (pool.c) ---- */
struct sim_pool;
/* Memory that a captured allocation owns: as long as a graph or an executable one mentions it, or a launch made it and nobody freed it. */
struct sim_graph_memory {
	int refs;
	bool live;
	struct sim_alloc *alloc;
};
void sim_graph_memory_unref(struct sim_graph_memory *m);
void sim_graph_memory_live(struct sim_graph_memory *m, bool live);
CUresult sim_graph_memory_new(uint64_t bytes, struct sim_work *w);
/* A wait for a value, or a write of one, checked. */
CUresult sim_memop_work(const CUstreamBatchMemOpParams *o, struct sim_work *w);
CUresult sim_pool_free_now(struct sim_alloc *a);

/* ---- launches (launch.c) ---- */
/* For the current device. */
CUresult sim_launch_pack(struct sim_launch *l, struct sim_kernel *k, void **params, void **extra);

/* ---- the rest ---- */
CUresult sim_unsupported(const char *symbol);
/* Copies with the stream rules of the synchronous and asynchronous calls (copy.c). */
CUresult sim_copy_call(struct sim_rect *r, CUstream h, bool async);

#endif
