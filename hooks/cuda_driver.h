/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver API as the hooks see it: real functions by name, hook prototypes, and the shape
 * of a hook's body. Each row of the tables is checked against cuda.h here: a prototype that differs
 * does not compile.
 */
#ifndef TPCK_HOOKS_CUDA_DRIVER_H
#define TPCK_HOOKS_CUDA_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/engine/engine.h"
#include "shim/driver.h"

#define TPCK_HOOK(symbol, base, since, ret, params, args) \
	ret CUDAAPI symbol params;                        \
	ret CUDAAPI tpck_hook_##symbol params;
#include "hooks/cuda_all.def"
#undef TPCK_HOOK

/* The real functions that are hooked, and those that only we call. */
struct tpck_cuda {
#define TPCK_HOOK(symbol, base, since, ret, params, args) __typeof__(symbol) *symbol;
#include "hooks/cuda_all.def"
#undef TPCK_HOOK
#define TPCK_USE(symbol) __typeof__(symbol) *symbol;
#include "hooks/cuda_used.def"
#undef TPCK_USE
};
extern struct tpck_cuda tpck_cuda __attribute__((visibility("hidden")));

/* The real function; binds to the driver at the first use. A hook is only ever reached by a caller who
 * found the driver, but one who linked to us on a machine without it gets CUDA_ERROR_NO_DEVICE. */
#define TPCK_REAL(symbol) \
	(__builtin_expect(tpck_cuda.symbol != NULL, 1) || !tpck_cuda_bind() ? tpck_cuda.symbol : NULL)
int tpck_cuda_bind(void);

/* Calls the real function, or says that there is no device. */
#define TPCK_CALL(symbol, ...) \
	(TPCK_REAL(symbol) ? tpck_cuda.symbol(__VA_ARGS__) : CUDA_ERROR_NO_DEVICE)

/* The stream as the `_ptsz` and `_ptds` entry points mean it. */
static inline CUstream tpck_per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

/* A call that orders memory is an operation for the record (its size and stream), not for inference. */
static inline void tpck_memory_call(struct tpck_call *call, enum tpck_op op, uint64_t bytes, CUstream stream)
{
	*call = (struct tpck_call){.stream = stream, .orders = true};
	call->token.op = op;
	call->token.func = 0x616c6c6f63; /* tells it from copies and sets */
	call->token.bytes = bytes;
}

/* The device interface of runtime/track/device.h over the real driver. */
const struct tpck_device *tpck_cuda_device(void);
/* Asks libraries that are used for the registered variables that they have not been asked for, and tells the engine of them. The first question loads a
 * library: where the driver says so, or that is seen to take long, those that are not loaded yet are left to tpck_cuda_variables_ahead(), but with `all`
 * or once that has got no further for two seconds. Whether every one has been asked. */
bool tpck_cuda_variables(bool all);
/* Has such libraries loaded before that question. By one thread. Whether there may be more soon. */
bool tpck_cuda_variables_ahead(void);
/* The program asked for one; library NULL: of a module. */
void tpck_cuda_variable_asked(CUlibrary library, const char *name, CUdeviceptr address, size_t bytes);
/* A kernel or module of it was asked for: its variables may change from here on. */
void tpck_cuda_library_used(CUlibrary library);
/* Whether a stream's wait for a value there is not to be carried out: it lies in memory that the library gave, and on this device would never end. The first
 * such question tries that out. By a thread that is inside the engine. */
bool tpck_cuda_wait_refused(CUdeviceptr address);
/* Whether any of several operations is a wait that tpck_cuda_wait_refused() refuses. Where none is later snapshots are marked as not resumable, with `why` for the user:
 * no log has them. By a thread outside the engine; inside it nothing is refused. */
bool tpck_cuda_waits_refused(const CUstreamBatchMemOpParams *operations, unsigned count, const char *why);
/* Whether a wait was refused once: memory is the driver's own from there on. */
bool tpck_cuda_waits_dead(void);
/* The program calls what no resume can repeat: snapshots from here on are marked as not resumable, with `why` for the user. By a thread outside the engine;
 * inside it nothing is done. */
void tpck_cuda_refuse(const char *why);
/* A context became current for the first time: the engine may touch the device. */
extern _Atomic bool tpck_cuda_seen __attribute__((visibility("hidden")));
void tpck_cuda_context_look(void);
static inline void tpck_cuda_context_seen(void)
{
	if (__builtin_expect(!atomic_load_explicit(&tpck_cuda_seen, memory_order_acquire), 0))
		tpck_cuda_context_look();
}

/* What the driver has said to the program: of an error that is for good the supervisor is told. */
void tpck_cuda_failed(CUresult result);
static inline void tpck_cuda_note(CUresult result)
{
	if (__builtin_expect(result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY, 0))
		tpck_cuda_failed(result);
}

#endif
