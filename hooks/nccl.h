/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL as the hooks see it. Its header comes with no toolkit, and what is needed of it is the same in every NCCL 2: it is
 * said here, and tests/preload/nccl_prototypes.sh holds it and the rows to each nccl.h that there is. Where a program
 * has no NCCL all this is a few names that nobody looks for.
 */
#ifndef TPCK_HOOKS_NCCL_H
#define TPCK_HOOKS_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/engine/engine.h"
#include "runtime/track/communicators.h"

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct { char internal[128]; } ncclUniqueId;
/* Enumerations there. */
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t, ncclCommMemStat_t;
typedef struct { int nRanks, rank, stride; } ncclTeam_t;
/* Only handed on: they grow from version to version. */
typedef struct ncclConfig ncclConfig_t;
typedef struct ncclSimInfo ncclSimInfo_t;
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;
typedef struct ncclCommProperties ncclCommProperties_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;

enum { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidArgument = 4, ncclInvalidUsage = 5, ncclInProgress = 7 };
#define NCCL_SPLIT_NOCOLOR -1

/* Each function by its name and by its profiling name. */
#define TPCK_HOOK_TWICE(symbol, ret, params, args) \
	ret tpck_hook_##symbol params;             \
	ret tpck_hook_p##symbol params;
#include "hooks/nccl_all.def"
#undef TPCK_HOOK_TWICE

enum tpck_nccl_function {
#define TPCK_HOOK_TWICE(symbol, ret, params, args) TPCK_NCCL_##symbol,
#include "hooks/nccl_all.def"
#undef TPCK_HOOK_TWICE
	TPCK_NCCL_FUNCTIONS,
};

/* The real functions, for the compiler. */
struct tpck_nccl_types {
#define TPCK_HOOK_TWICE(symbol, ret, params, args) ret(*symbol) params;
#include "hooks/nccl_all.def"
#undef TPCK_HOOK_TWICE
};

/* The real function that the program's call would have come to, or NULL: it has none. */
void *tpck_nccl_real(enum tpck_nccl_function function, bool profiling);
/* The same as of now: nothing is settled by it. */
void *tpck_nccl_would_be(enum tpck_nccl_function function, bool profiling);
/* A function of NCCL that is not hooked, or NULL. */
void *tpck_nccl_symbol(const char *symbol);

#define TPCK_NCCL_REAL(symbol, profiling) \
	((__typeof__(((struct tpck_nccl_types *)NULL)->symbol))tpck_nccl_real(TPCK_NCCL_##symbol, profiling))
/* Calls it, or says that there is none. */
#define TPCK_NCCL_CALL(symbol, profiling, ...) \
	(tpck_nccl_real(TPCK_NCCL_##symbol, profiling) ? TPCK_NCCL_REAL(symbol, profiling)(__VA_ARGS__) : ncclSystemError)

/*
 * A communicator that is made here is known to the program by a key of the library's (runtime/track/communicators.h), and every call that takes
 * one tells NCCL the handle behind it. An NCCL with a function that the tables do not know might be given a key: there the program has NCCL's
 * own handles, which pass every hook as they are. Decided once, at the first communicator or id, by what exports the functions that are called.
 */
bool tpck_nccl_keys(void);
/* Whether a function has a hook, by its name without a p. Whether what a program finds by the names of those is the hooks. */
bool tpck_nccl_is_hooked(const char *symbol);
bool tpck_nccl_is_first(void);
#define TPCK_NCCL_HANDLE(comm) ((ncclComm_t)tpck_communicator_real(comm))

/* Around a real call: what NCCL does inside of it is its own, and so are the threads that it starts. */
struct tpck_thread *tpck_nccl_enter(void);
void tpck_nccl_leave(struct tpck_thread *self);

/* The bodies of a call that is only passed on; `before` may use self, which is NULL where nothing is followed. */
#define TPCK_NCCL_PASS(symbol, params, before, ...) \
	TPCK_NCCL_PASS_AS(ncclResult_t, ncclSystemError, symbol, params, before, __VA_ARGS__)
/* The same of a call that returns something else, and `none` where there is no real one. */
#define TPCK_NCCL_PASS_AS(ret, none, symbol, params, before, ...)                             \
	ret tpck_hook_##symbol params                                                         \
	{                                                                                     \
		struct tpck_thread *self = tpck_nccl_enter();                                 \
		ret result;                                                                   \
		before;                                                                       \
		result = tpck_nccl_real(TPCK_NCCL_##symbol, false) ?                          \
				 TPCK_NCCL_REAL(symbol, false)(__VA_ARGS__) : (none);         \
		tpck_nccl_leave(self);                                                        \
		return result;                                                                \
	}                                                                                     \
	ret tpck_hook_p##symbol params                                                        \
	{                                                                                     \
		struct tpck_thread *self = tpck_nccl_enter();                                 \
		ret result;                                                                   \
		before;                                                                       \
		result = tpck_nccl_real(TPCK_NCCL_##symbol, true) ?                           \
				 TPCK_NCCL_REAL(symbol, true)(__VA_ARGS__) : (none);          \
		tpck_nccl_leave(self);                                                        \
		return result;                                                                \
	}

/* Says once what went wrong; communicator may be NULL. Returns the result. */
ncclResult_t tpck_nccl_result(struct tpck_thread *self, ncclComm_t communicator, const char *symbol, ncclResult_t result);

/* ---- groups (nccl_collective.c) ---- */
/* Whether the calling thread is in a group: what is made there is there at the group's end. A group whose calls are kept
 * back is begun for real by the first that is made in it. */
bool tpck_nccl_grouped(struct tpck_thread *self);
/* Calls `done` when the group has ended, with a copy of the argument, and whether the group says success. */
void tpck_nccl_at_group_end(void (*done)(struct tpck_thread *self, void *argument, bool good), const void *argument, size_t bytes);

#endif
