/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are taken, and why: by their names, and by what is at their paths. Known to the library and to
 * `transpckpt show --files`, which must not differ. */
#ifndef TPCK_RUNTIME_VIEW_RULES_H
#define TPCK_RUNTIME_VIEW_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "runtime/base/settings.h"

enum tpck_rule {
	/* The file is taken. */
	TPCK_RULE_NAME,   /* checkpoints, and what points to them, are called so */
	TPCK_RULE_FOLDER, /* it lies in a checkpoint's folder */
	TPCK_RULE_ASKED,  /* a glob of TRANSPCKPT_FILES */
	/* The file is taken, since another one of its name, but for digits, turned out to be one (runtime/view/learnt_names.h). */
	TPCK_RULE_TORCH,       /* of torch.save */
	TPCK_RULE_PICKLE,      /* of torch.save as it was before 1.6 */
	TPCK_RULE_SAFETENSORS,
	TPCK_RULE_HDF5,
	TPCK_RULE_NPY,
	TPCK_RULE_NPZ,
	TPCK_RULE_DEVICE,      /* written from memory that the device was copied to */
	/* The file is not taken. */
	TPCK_RULE_UNKNOWN,  /* nothing says that it is a checkpoint */
	TPCK_RULE_OFF,      /* TRANSPCKPT_FILES=none */
	TPCK_RULE_NEVER,    /* a log, a database, a lock ...: written in place by its nature */
	TPCK_RULE_OUTSIDE,  /* the kernel's folders, or this library's own */
	TPCK_RULE_PAST_US,  /* renamed by system calls that nobody sees */
	TPCK_RULE_KIND,     /* a folder, a link, a pipe, a device */
	TPCK_RULE_LINKS,    /* it has several names */
	TPCK_RULE_OWNER,    /* another user's */
	TPCK_RULE_READONLY, /* it, or its folder, cannot be written */
	TPCK_RULE_EXCEPT,   /* TRANSPCKPT_FILES_EXCEPT has its folder */
	TPCK_RULE_TOOL,     /* it would be recognised, but who writes it handles files of others: tpck_rules_tool() */
};

static inline bool tpck_rule_takes(enum tpck_rule rule)
{
	return rule <= TPCK_RULE_DEVICE;
}

static inline bool tpck_rule_learnt(enum tpck_rule rule)
{
	return rule >= TPCK_RULE_TORCH && rule <= TPCK_RULE_DEVICE;
}

/* In plain words, to be read behind "taken: " or "not taken: ". */
const char *tpck_rule_text(enum tpck_rule rule);

/* By the last part of any path, without a buffer: false where tpck_rules_name() would say no. */
bool tpck_rules_may_be(const struct tpck_settings *settings, const char *path);
/* By the last two parts: false where it would say that nothing is known of it, or no. */
bool tpck_rules_may_recognise(const struct tpck_settings *settings, const char *path);
/* Whether files are recognised, or taken by globs alone. */
bool tpck_rules_auto(const struct tpck_settings *settings);
/* Whether a folder of TRANSPCKPT_FILES_EXCEPT has an absolute path. */
bool tpck_rules_excepted(const struct tpck_settings *settings, const char *absolute);
/* Whether an executable of this path copies, packs, builds, edits or starts what others have made: a shell, cp, tar, git, a compiler. What it writes has
 * been saved by somebody else already. */
bool tpck_rules_tool(const char *program);
/* By an absolute path; `tool`: of the process that writes it. `glob`, where it is not NULL, gets what said so ("" where nothing did), in `size` bytes. */
enum tpck_rule tpck_rules_name(const struct tpck_settings *settings, const char *absolute, bool tool, char *glob, size_t size);
/* Of a rule that takes: whether nothing but the file's folder, or a glob that has every name, says that it is a checkpoint. `glob` is
 * what tpck_rules_name() gave. */
bool tpck_rules_unsure(enum tpck_rule rule, const char *glob, const char *absolute);
/* Whether a file that replaces the one of this name, in the folder `folder` (O_PATH is enough), would be the same to
 * everybody: TPCK_RULE_NAME, or why not. `parent` is the folder; `there` what has the name, if `exists`. `removed`: the job does
 * not see what has it any more. */
enum tpck_rule tpck_rules_place(int folder, const char *name, bool removed, struct stat *parent, struct stat *there, bool *exists);

/* Whether a file of this name says that others are whole: it waits for all that closed before it, on whatever disk. */
bool tpck_rules_points(const char *name);

/* A name of Rust's tempfile (safetensors from 0.8 on), which makes the system calls that rename it itself: nobody sees them. */
bool tpck_rules_renamed_past_us(const char *path);

#endif
