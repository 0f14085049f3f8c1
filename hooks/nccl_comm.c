/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what NCCL does with communicators that are there, or that a program which runs forward was told are there. */
#include "config.h"

#include <string.h>

#include "hooks/nccl_private.h"
#include "runtime/track/communicators.h"

/* ---- the end, and errors ------------------------------------------------------------------------------------ */

/* The end of a communicator, in the record. */
struct ended {
	int32_t result, reserved;
};

/* Forgotten before the real call: the handle may be given out again at once. */
static ncclResult_t ends(bool profiling, enum tpck_nccl_function function, ncclComm_t comm)
{
	struct tpck_thread *self = tpck_engine_enter();
	ncclResult_t (*real)(ncclComm_t) = (__typeof__(real))tpck_nccl_real(function, profiling);
	struct ended ended = {ncclSuccess, 0};
	ncclResult_t result;
	ncclComm_t handle;
	bool pretended;

	if (self)
		(void)tpck_engine_nccl_answer(self, &ended, sizeof ended);
	/* The process may be live only now. */
	pretended = tpck_nccl_pretended(comm) != NULL;
	handle = TPCK_NCCL_HANDLE(comm);
	if (self)
		tpck_engine_nccl_note(self, &ended, sizeof ended);
	tpck_nccl_belongings_end(comm);
	/* A key whose communicator is gone is nobody's, whoever follows. */
	if (self || handle != comm)
		tpck_communicator_remove(comm);
	if (self)
		self->elsewhere = true;
	result = pretended ? ended.result : real ? real(handle) : ncclSystemError;
	tpck_nccl_leave(self);
	return result;
}

ncclResult_t tpck_hook_ncclCommDestroy(ncclComm_t comm)
{
	return ends(false, TPCK_NCCL_ncclCommDestroy, comm);
}

ncclResult_t tpck_hook_pncclCommDestroy(ncclComm_t comm)
{
	return ends(true, TPCK_NCCL_ncclCommDestroy, comm);
}

ncclResult_t tpck_hook_ncclCommAbort(ncclComm_t comm)
{
	return ends(false, TPCK_NCCL_ncclCommAbort, comm);
}

ncclResult_t tpck_hook_pncclCommAbort(ncclComm_t comm)
{
	return ends(true, TPCK_NCCL_ncclCommAbort, comm);
}

static ncclResult_t async_error(bool profiling, ncclComm_t comm, ncclResult_t *error)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result;

	/* Nothing is under way on it. */
	if (error && tpck_nccl_pretended(comm)) {
		*error = ncclSuccess;
		tpck_nccl_leave(self);
		return ncclSuccess;
	}
	result = TPCK_NCCL_CALL(ncclCommGetAsyncError, profiling, TPCK_NCCL_HANDLE(comm), error);
	if (result == ncclSuccess && error)
		tpck_nccl_result(self, comm, "NCCL", *error);
	tpck_nccl_leave(self);
	return result;
}

ncclResult_t tpck_hook_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
	return async_error(false, comm, asyncError);
}

ncclResult_t tpck_hook_pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
	return async_error(true, comm, asyncError);
}

/* ---- what is passed on, NCCL being by itself meanwhile -------------------------------------------------------- */

static void refuse(struct tpck_thread *self, const char *why)
{
	if (self)
		tpck_engine_unresumable(why);
}

/* What cannot be answered while running forward is asked once the process is live. */
static void awaits(struct tpck_thread *self, ncclComm_t comm)
{
	if (!self || !tpck_nccl_pretended(comm))
		return;
	self->elsewhere = false;
	tpck_engine_nccl_await(self);
	self->elsewhere = true;
}

static void asks(struct tpck_thread *self, ncclComm_t comm, const char *why)
{
	refuse(self, why);
	awaits(self, comm);
}

#define H TPCK_NCCL_HANDLE
TPCK_NCCL_PASS(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId), awaits(self, comm), H(comm), uniqueId)
TPCK_NCCL_PASS(ncclCommRevoke, (ncclComm_t comm, int revokeFlags),
	       asks(self, comm, "the program takes a communicator back (ncclCommRevoke)"), H(comm), revokeFlags)
TPCK_NCCL_PASS(ncclCommSuspend, (ncclComm_t comm, int flags),
	       asks(self, comm, "the program suspends a communicator (ncclCommSuspend)"), H(comm), flags)
TPCK_NCCL_PASS(ncclCommResume, (ncclComm_t comm), awaits(self, comm), H(comm))
/* What ncclMemAlloc() gives is the driver's, at an address of its choice, and the program keeps its tensors there. */
TPCK_NCCL_PASS(ncclMemAlloc, (void **ptr, size_t size), refuse(self, "the program takes memory from NCCL (ncclMemAlloc)"), ptr, size)
TPCK_NCCL_PASS(ncclMemFree, (void *ptr), (void)0, ptr)

/* Kernels of the program's that use it exchange data behind everybody's back. */
TPCK_NCCL_PASS(ncclDevCommCreate, (ncclComm_t comm, const ncclDevCommRequirements_t *reqs, ncclDevComm_t *outDevComm),
	       asks(self, comm, "the program's kernels use a communicator (ncclDevCommCreate)"), H(comm), reqs, outDevComm)
TPCK_NCCL_PASS(ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t *devComm), awaits(self, comm), H(comm), devComm)
TPCK_NCCL_PASS(ncclGinBarrierCreateRequirement,
	       (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq),
	       asks(self, comm, "the program's kernels use a communicator (ncclDevCommCreate)"), H(comm), team, nBarriers, outHandle, outReq)

/* ---- what is known of one that has not been made --------------------------------------------------------------- */

/* A body for both names, told which. */
#define EITHER(ret, symbol, params, ...)                \
	ret tpck_hook_##symbol params                   \
	{                                               \
		return symbol##_either(false, __VA_ARGS__); \
	}                                               \
	ret tpck_hook_p##symbol params                  \
	{                                               \
		return symbol##_either(true, __VA_ARGS__);  \
	}

static ncclResult_t number_of(bool profiling, enum tpck_nccl_function function, ncclComm_t comm, int *out)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t (*real)(ncclComm_t, int *) = (__typeof__(real))tpck_nccl_real(function, profiling);
	struct tpck_communicator *pretended = tpck_nccl_pretended(comm);
	ncclResult_t result = ncclSuccess;

	/* Of a child whose device NCCL did not say: it is its parent's, and there is one. */
	if (pretended && out)
		*out = function == TPCK_NCCL_ncclCommCount      ? (int)pretended->size :
		       function == TPCK_NCCL_ncclCommUserRank   ? (int)pretended->rank :
		       pretended->device < 0                    ? 0 : pretended->device;
	else
		result = real ? real(H(comm), out) : ncclSystemError;
	tpck_nccl_leave(self);
	return result;
}

#define NUMBER(symbol, out)                                                           \
	ncclResult_t tpck_hook_##symbol(const ncclComm_t comm, int *out)              \
	{                                                                             \
		return number_of(false, TPCK_NCCL_##symbol, comm, out);               \
	}                                                                             \
	ncclResult_t tpck_hook_p##symbol(const ncclComm_t comm, int *out)             \
	{                                                                             \
		return number_of(true, TPCK_NCCL_##symbol, comm, out);                \
	}

NUMBER(ncclCommCount, count)
NUMBER(ncclCommCuDevice, device)
NUMBER(ncclCommUserRank, rank)

static const char *ncclGetLastError_either(bool profiling, ncclComm_t comm)
{
	struct tpck_thread *self = tpck_nccl_enter();
	const char *result = "";

	if (!tpck_nccl_pretended(comm) && tpck_nccl_real(TPCK_NCCL_ncclGetLastError, profiling))
		result = TPCK_NCCL_REAL(ncclGetLastError, profiling)(H(comm));
	tpck_nccl_leave(self);
	return result;
}
EITHER(const char *, ncclGetLastError, (ncclComm_t comm), comm)

static ncclResult_t ncclCommFinalize_either(bool profiling, ncclComm_t comm)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result = tpck_nccl_pretended(comm) ? ncclSuccess : TPCK_NCCL_CALL(ncclCommFinalize, profiling, H(comm));

	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclCommFinalize, (ncclComm_t comm), comm)

/* In the record. */
struct identified {
	ncclUniqueId id;
	int32_t result, reserved;
};

/* Nobody meets by what a program that runs forward tells its other ranks: but it may do other things with it, as in the first run. */
static ncclResult_t ncclGetUniqueId_either(bool profiling, ncclUniqueId *id)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct identified identified = {.result = ncclSuccess};
	bool told = self && id && tpck_engine_nccl_answer(self, &identified, sizeof identified);

	if (told && tpck_nccl_keys()) {
		*id = identified.id;
		tpck_nccl_id_pretend(id);
		tpck_engine_leave(self);
		return identified.result;
	}
	if (self)
		self->elsewhere = true;
	identified.result = TPCK_NCCL_CALL(ncclGetUniqueId, profiling, id);
	if (self && id && identified.result == ncclSuccess) {
		identified.id = *id;
		tpck_nccl_id_given(id);
	}
	if (self && id)
		tpck_engine_nccl_note(self, &identified, sizeof identified);
	tpck_nccl_leave(self);
	return identified.result;
}
EITHER(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *uniqueId), uniqueId)

/* ---- what is in the record: what NCCL answers ------------------------------------------------------------------- */

/* What one call was told, with what it wrote. */
struct told {
	int32_t result;
	uint32_t bytes;
	char byte[256];
};

/* Running forward: as the first run had it. */
static bool told_before(struct tpck_thread *self, struct told *told, void *at, size_t bytes)
{
	if (!self)
		return false;
	if (!tpck_engine_nccl_answer(self, told, sizeof *told)) {
		self->elsewhere = true;
		return false;
	}
	if (at && told->bytes <= bytes && told->bytes <= sizeof told->byte)
		memcpy(at, told->byte, told->bytes);
	return true;
}

static void told_now(struct tpck_thread *self, int result, const void *at, size_t bytes)
{
	struct told told = {.result = result};

	if (!self)
		return;
	if (at && bytes <= sizeof told.byte) {
		told.bytes = (uint32_t)bytes;
		memcpy(told.byte, at, bytes);
	}
	tpck_engine_nccl_note(self, &told, sizeof told);
}

static ncclResult_t ncclCommMemStats_either(bool profiling, ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct told told;

	if (!told_before(self, &told, value, sizeof *value)) {
		told.result = TPCK_NCCL_CALL(ncclCommMemStats, profiling, H(comm), stat, value);
		told_now(self, told.result, value, sizeof *value);
	}
	tpck_nccl_leave(self);
	return told.result;
}
EITHER(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value), comm, stat, value)

/* The structure grows from version to version, and says its size. */
static ncclResult_t ncclCommQueryProperties_either(bool profiling, ncclComm_t comm, ncclCommProperties_t *props)
{
	struct tpck_thread *self = tpck_engine_enter();
	size_t bytes = props ? *(const size_t *)(const void *)props : 0;
	struct told told;

	if (!told_before(self, &told, props, bytes)) {
		told.result = TPCK_NCCL_CALL(ncclCommQueryProperties, profiling, H(comm), props);
		told_now(self, told.result, props, bytes);
	}
	tpck_nccl_leave(self);
	return told.result;
}
EITHER(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t *props), comm, props)

static ncclTeam_t team_of(bool profiling, enum tpck_nccl_function function, ncclComm_t comm)
{
	struct tpck_thread *self = tpck_engine_enter();
	ncclTeam_t (*real)(ncclComm_t) = (__typeof__(real))tpck_nccl_real(function, profiling);
	ncclTeam_t team = {0};
	struct told told;

	if (!told_before(self, &told, &team, sizeof team)) {
		if (real)
			team = real(H(comm));
		told_now(self, 0, &team, sizeof team);
	}
	tpck_nccl_leave(self);
	return team;
}

static int rank_in(bool profiling, enum tpck_nccl_function function, ncclComm_t comm, ncclTeam_t team, int rank)
{
	struct tpck_thread *self = tpck_engine_enter();
	int (*real)(ncclComm_t, ncclTeam_t, int) = (__typeof__(real))tpck_nccl_real(function, profiling);
	struct told told;

	if (!told_before(self, &told, NULL, 0)) {
		told.result = real ? real(H(comm), team, rank) : -1;
		told_now(self, told.result, NULL, 0);
	}
	tpck_nccl_leave(self);
	return told.result;
}

#define TEAM(symbol)                                                             \
	ncclTeam_t tpck_hook_##symbol(ncclComm_t comm)                           \
	{                                                                        \
		return team_of(false, TPCK_NCCL_##symbol, comm);                 \
	}                                                                        \
	ncclTeam_t tpck_hook_p##symbol(ncclComm_t comm)                          \
	{                                                                        \
		return team_of(true, TPCK_NCCL_##symbol, comm);                  \
	}
#define RANK(symbol)                                                             \
	int tpck_hook_##symbol(ncclComm_t comm, ncclTeam_t team, int rank)       \
	{                                                                        \
		return rank_in(false, TPCK_NCCL_##symbol, comm, team, rank);     \
	}                                                                        \
	int tpck_hook_p##symbol(ncclComm_t comm, ncclTeam_t team, int rank)      \
	{                                                                        \
		return rank_in(true, TPCK_NCCL_##symbol, comm, team, rank);      \
	}

TEAM(ncclTeamWorld)
TEAM(ncclTeamLsa)
TEAM(ncclTeamRail)
RANK(ncclTeamRankToWorld)
RANK(ncclTeamRankToLsa)

/* ---- what belongs to one ------------------------------------------------------------------------------------------ */

static ncclResult_t ncclCommRegister_either(bool profiling, ncclComm_t comm, void *buff, size_t size, void **handle)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result = ncclSuccess;

	if (handle && tpck_nccl_pretended(comm)) {
		*handle = tpck_nccl_registered(comm, buff, size, false, 0);
		result = *handle ? ncclSuccess : ncclSystemError;
	} else {
		result = TPCK_NCCL_CALL(ncclCommRegister, profiling, H(comm), buff, size, handle);
	}
	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle), comm, buff, size, handle)

static ncclResult_t ncclCommWindowRegister_either(bool profiling, ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result = ncclSuccess;

	if (win && tpck_nccl_pretended(comm)) {
		*win = tpck_nccl_registered(comm, buff, size, true, flags);
		result = *win ? ncclSuccess : ncclSystemError;
	} else {
		result = TPCK_NCCL_CALL(ncclCommWindowRegister, profiling, H(comm), buff, size, win, flags);
	}
	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags), comm, buff, size, win,
       winFlags)

static ncclResult_t ncclCommDeregister_either(bool profiling, ncclComm_t comm, void *handle)
{
	struct tpck_thread *self = tpck_nccl_enter();
	bool pretended = tpck_nccl_pretended(comm) != NULL;
	void *real = tpck_nccl_registration_ends(handle);
	ncclResult_t result = pretended ? ncclSuccess : TPCK_NCCL_CALL(ncclCommDeregister, profiling, H(comm), real);

	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle), comm, handle)

static ncclResult_t ncclCommWindowDeregister_either(bool profiling, ncclComm_t comm, ncclWindow_t win)
{
	struct tpck_thread *self = tpck_nccl_enter();
	bool pretended = tpck_nccl_pretended(comm) != NULL;
	ncclWindow_t real = tpck_nccl_registration_ends(win);
	ncclResult_t result = pretended ? ncclSuccess : TPCK_NCCL_CALL(ncclCommWindowDeregister, profiling, H(comm), real);

	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win), comm, win)

static ncclResult_t ncclWinGetUserPtr_either(bool profiling, ncclComm_t comm, ncclWindow_t win, void **out)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result = ncclSuccess;

	if (out && tpck_nccl_pretended(comm))
		*out = tpck_nccl_window_buffer(win);
	else
		result = TPCK_NCCL_CALL(ncclWinGetUserPtr, profiling, H(comm), tpck_nccl_registration(win), out);
	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr), comm, win, outUserPtr)

static ncclResult_t ncclRedOpCreatePreMulSum_either(bool profiling, ncclRedOp_t *op, void *scalar, ncclDataType_t type,
						    ncclScalarResidence_t residence, ncclComm_t comm)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result = ncclSuccess;

	if (op && scalar && tpck_nccl_pretended(comm)) {
		*op = tpck_nccl_operation(comm, scalar, type, residence);
		result = *op >= 0 ? ncclSuccess : ncclSystemError;
	} else {
		result = TPCK_NCCL_CALL(ncclRedOpCreatePreMulSum, profiling, op, scalar, type, residence, H(comm));
	}
	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclRedOpCreatePreMulSum,
	   (ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm), op, scalar, datatype, residence,
       comm)

static ncclResult_t ncclRedOpDestroy_either(bool profiling, ncclRedOp_t op, ncclComm_t comm)
{
	struct tpck_thread *self = tpck_nccl_enter();
	bool pretended = tpck_nccl_pretended(comm) != NULL;
	int real = tpck_nccl_operation_ends(comm, op);
	ncclResult_t result = pretended ? ncclSuccess : TPCK_NCCL_CALL(ncclRedOpDestroy, profiling, real, H(comm));

	tpck_nccl_leave(self);
	return result;
}
EITHER(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), op, comm)
