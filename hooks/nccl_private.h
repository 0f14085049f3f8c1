/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of NCCL's hooks: communicators that are made, pretended to be made, and made anew. */
#ifndef TPCK_HOOKS_NCCL_PRIVATE_H
#define TPCK_HOOKS_NCCL_PRIVATE_H

#include "hooks/nccl.h"

/* ---- a call that makes a communicator (nccl_birth.c) ---- */
enum tpck_birth_kind { TPCK_BIRTH_RANK, TPCK_BIRTH_CONFIG, TPCK_BIRTH_SCALABLE, TPCK_BIRTH_SPLIT, TPCK_BIRTH_SHRINK, TPCK_BIRTH_GROW };

struct tpck_birth {
	const char *called;              /* NCCL's name of it */
	enum tpck_birth_kind kind;
	bool profiling;
	ncclComm_t *out;                 /* the program's */
	struct tpck_communicator *place; /* NULL: the program is given NCCL's own handle, by NCCL */
	uint64_t id;
	ncclComm_t parent;               /* as the program says it; NULL: it has none */
	ncclConfig_t *config;            /* or NULL */
	const ncclUniqueId *ids;         /* NULL: it is a child */
	int ids_count, size, rank;
	int color, key;                  /* of a split */
	const int *excluded;             /* of a shrink */
	int excluded_count, flags;
	const ncclUniqueId *grown;       /* of a grow, or NULL */
};

/* Of a kept group's, at its end. As the record says, and true; else it is to be made: in an open group, and once that is closed it is settled. */
bool tpck_birth_answer(struct tpck_thread *self, struct tpck_birth *birth, ncclResult_t *result);
ncclResult_t tpck_birth_make(struct tpck_birth *birth);
void tpck_birth_settle(struct tpck_thread *self, struct tpck_birth *birth, bool good);
void tpck_birth_free(struct tpck_birth *birth);

/* ---- groups (nccl_collective.c) ---- */
/* Whether the calling thread is in a group; and in one whose calls are kept until it ends. */
bool tpck_nccl_grouped_now(void);
bool tpck_nccl_group_keeps(void);
/* Keeps this, too, which is malloc'd and the group's from then on. False: there is no memory. */
bool tpck_nccl_group_keep(struct tpck_birth *birth);

/* ---- what was pretended (nccl_anew.c) ---- */
/* The record of a communicator that has not been made, or NULL. */
static inline struct tpck_communicator *tpck_nccl_pretended(ncclComm_t comm)
{
	struct tpck_communicator *communicator = comm ? tpck_communicator_find(comm) : NULL;

	return communicator && atomic_load(&communicator->pending) ? communicator : NULL;
}
/* Says who makes them before the process is live. */
void tpck_nccl_anew_begin(void);
/* Makes it now: a graph that is captured while running forward needs it. False: it could not be, and a line says so. */
bool tpck_nccl_make_now(struct tpck_thread *self, ncclComm_t comm);

/* Whether all that a configuration says is known; a copy of it, malloc'd, or NULL. */
bool tpck_nccl_config_is_known(const ncclConfig_t *config);
ncclConfig_t *tpck_nccl_config_copy(const ncclConfig_t *config);
/* The configuration of a communicator that is to be made later; a child without one has its parent's. */
void tpck_nccl_config_keep(struct tpck_communicator *of, const ncclConfig_t *config, ncclComm_t parent);

/* A program that runs forward is given the id of its first run. */
void tpck_nccl_id_pretend(const ncclUniqueId *id);
/* The program is given one of NCCL's. */
void tpck_nccl_id_given(const ncclUniqueId *id);
/* By what ranks that have these ids meet now, malloc'd, or NULL: by them. Some may have been given while running forward. */
ncclUniqueId *tpck_nccl_ids_now(const ncclUniqueId *ids, int count);
/* A communicator was pretended to be made of them. */
void tpck_nccl_id_spend(const ncclUniqueId *ids, int count);

/* What belongs to a communicator and was pretended to be made: buffers and windows that are registered, and reductions. A value for the program,
 * or NULL, or -1: there is no memory. */
void *tpck_nccl_registered(ncclComm_t comm, void *buffer, size_t bytes, bool window, int flags);
int tpck_nccl_operation(ncclComm_t comm, const void *scalar, ncclDataType_t type, ncclScalarResidence_t residence);
/* NCCL's own in the place of that value; any other is as it is. */
void *tpck_nccl_registration(void *value);
int tpck_nccl_operation_of(ncclComm_t comm, int op);
/* A belonging ends: the same, and it is not known any more. What of a window's buffer is known, or NULL. */
void *tpck_nccl_registration_ends(void *value);
int tpck_nccl_operation_ends(ncclComm_t comm, int op);
void *tpck_nccl_window_buffer(void *value);
/* All that belongs to it ends with it. */
void tpck_nccl_belongings_end(ncclComm_t comm);

#endif
