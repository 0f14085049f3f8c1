/* SPDX-License-Identifier: Apache-2.0 */
/* The rules by which files are taken. System calls are made directly: the library's hooks are not to be met. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/tier_settings.h"
#include "runtime/view/rules.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/layout.h"
#include "runtime/view/view.h"

struct glob {
	const char *text;
	size_t length;
};
#define GLOB(text) {text, sizeof(text) - 1}

/* What is never a checkpoint, wherever it lies: what is appended to while others read it, and what is changed in
 * place under locks. */
static const struct glob never[] = {
	GLOB("*.log"), GLOB("events.out.tfevents.*"), GLOB("*.jsonl"), GLOB("*.csv"), GLOB("*.lock"), GLOB("*.lck"),
	GLOB("*.pid"), GLOB("*.sock"), GLOB("*.sqlite*"), GLOB("*.db"), GLOB("*.db-*"), GLOB("*.lmdb"), GLOB("*.mdb"),
	GLOB("*.py"), GLOB("*.pyc"), GLOB("*.so"), GLOB("*.o"),
};
/* What PyTorch, its savers, JAX's and C programs call checkpoints, and the files that point to the latest. */
static const struct glob names[] = {
	GLOB("*.pt"), GLOB("*.pth"), GLOB("*.ckpt"), GLOB("*.safetensors"), GLOB("*.distcp"), GLOB("*.npz"), GLOB("*.h5"),
	GLOB("*.hdf5"), GLOB("*.keras"), GLOB("*.msgpack"), GLOB("*.pdparams"), GLOB("*.pdopt"), GLOB("*.pt.*"),
	GLOB("*.ckpt.*"), GLOB("*.safetensors.*"), GLOB("model*.bin"), GLOB("state*.bin"), GLOB("optimizer*.bin"),
	GLOB("pytorch_model*.bin"), GLOB("scheduler*.bin"), GLOB("random_states_*.pkl"), GLOB("latest"),
	GLOB("latest_checkpointed_iteration.txt"), GLOB("DONE_*"), GLOB(".metadata"), GLOB(".metadata.*"),
	GLOB("metadata.json"), GLOB("commit_success.txt"), GLOB("trainer_state.json"), GLOB("dlrover_latest.txt"),
};
/* Folders that hold one checkpoint: all that is written into them. */
static const struct glob folders[] = {
	GLOB("checkpoint-[0-9]*"), GLOB("checkpoint_[0-9]*"), GLOB("tmp-checkpoint-[0-9]*"), GLOB("global_step[0-9]*"),
	GLOB("iter_[0-9]*"), GLOB("step-[0-9]*"), GLOB("step_[0-9]*"), GLOB("step[0-9]*"), GLOB("epoch-[0-9]*"),
	GLOB("epoch_[0-9]*"), GLOB("ckpt-[0-9]*"), GLOB("ckpt_[0-9]*"),
};

/* The kernel's own. */
static const char *const kernels[] = {"/proc", "/sys", "/dev", "/run"};

const char *tpck_rule_text(enum tpck_rule rule)
{
	static const char *const texts[] = {
		[TPCK_RULE_NAME] = "checkpoints are called so",
		[TPCK_RULE_FOLDER] = "it lies in a checkpoint's folder",
		[TPCK_RULE_ASKED] = "TRANSPCKPT_FILES has it",
		[TPCK_RULE_TORCH] = "learnt by content: a file of torch.save",
		[TPCK_RULE_PICKLE] = "learnt by content: an old file of torch.save",
		[TPCK_RULE_SAFETENSORS] = "learnt by content: a safetensors file",
		[TPCK_RULE_HDF5] = "learnt by content: an HDF5 file",
		[TPCK_RULE_NPY] = "learnt by content: an array of NumPy",
		[TPCK_RULE_NPZ] = "learnt by content: arrays of NumPy",
		[TPCK_RULE_DEVICE] = "learnt: written from a device copy's target",
		[TPCK_RULE_UNKNOWN] = "nothing says that it is a checkpoint",
		[TPCK_RULE_OFF] = "TRANSPCKPT_FILES is none",
		[TPCK_RULE_NEVER] = "files of such a name are written in place",
		[TPCK_RULE_OUTSIDE] = "the kernel's folder, or one of this library's own",
		[TPCK_RULE_PAST_US] = "it is renamed by system calls that nobody sees",
		[TPCK_RULE_KIND] = "it is no plain file",
		[TPCK_RULE_LINKS] = "it has several names",
		[TPCK_RULE_OWNER] = "it is another user's",
		[TPCK_RULE_READONLY] = "it cannot be written, or its folder cannot",
		[TPCK_RULE_EXCEPT] = "TRANSPCKPT_FILES_EXCEPT has its folder",
		[TPCK_RULE_TOOL] = "a program that handles files of others writes it",
	};

	return texts[rule];
}

/* As fnmatch() does it with the globs of the lists above, which have stars and [0-9] and no more: that function makes wide characters
 * of name and glob first, and each file that is written is held against some sixty. */
static bool is_like(const char *glob, const char *name)
{
	const char *star = NULL, *from = NULL;

	while (*name) {
		if (*glob == '*') {
			star = ++glob;
			from = name;
		} else if (*glob == '[' ? *name >= '0' && *name <= '9' : *glob == *name) {
			glob += *glob == '[' ? strlen("[0-9]") : 1;
			name++;
		} else if (star) {
			glob = star;
			name = ++from;
		} else {
			return false;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

/* Most names differ from a glob in its first byte or in its last one. */
static const char *one_of(const char *name, const struct glob *globs, size_t count)
{
	size_t length = strlen(name);

	for (size_t i = 0; length && i < count; i++) {
		char first = *globs[i].text, last = globs[i].text[globs[i].length - 1];

		if ((first == '*' || first == *name) && (last == '*' || last == name[length - 1]) && is_like(globs[i].text, name))
			return globs[i].text;
	}
	return NULL;
}
#define ONE_OF(name, globs) one_of(name, globs, sizeof globs / sizeof *globs)

static bool below(const char *path, const char *folder)
{
	size_t length = strlen(folder);

	return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* The next of the globs, or folders, with colons between them: its length, and what is behind it in `next`. */
static size_t glob_of(const char *globs, const char **next)
{
	const char *colon = strchr(globs, ':');
	size_t length = colon ? (size_t)(colon - globs) : strlen(globs);

	*next = globs + length + (globs[length] == ':');
	return length;
}

static bool outside(const struct tpck_settings *settings, const char *absolute)
{
	char folder[TPCK_SETTING_TEXT_MAX + 16], kind[TPCK_TIER_KIND];

	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (below(absolute, kernels[i]))
			return true;
	tpck_settings_shm(settings, folder, sizeof folder);
	if (below(absolute, folder))
		return true;
	for (unsigned i = 0; tpck_settings_tier(settings, i, kind, folder, sizeof folder); i++)
		if (below(absolute, folder))
			return true;
	return false;
}

bool tpck_rules_excepted(const struct tpck_settings *settings, const char *absolute)
{
	char folder[TPCK_SETTING_TEXT_MAX];
	const char *next;

	for (const char *at = settings->files_except; *at; at = next) {
		size_t length = glob_of(at, &next);

		while (length && at[length - 1] == '/')
			length--;
		snprintf(folder, sizeof folder, "%.*s", (int)length, at);
		if (below(absolute, folder))
			return true;
	}
	return false;
}

static void say(char *out, size_t size, const char *glob, int length)
{
	if (out)
		snprintf(out, size, "%.*s", length, glob);
}

static enum tpck_rule recognised(const char *absolute, const char *name, char *out, size_t size)
{
	char parent[TPCK_VIEW_NAME];
	const char *begin = name - 1, *glob = ONE_OF(name, never);
	enum tpck_rule rule = glob ? TPCK_RULE_NEVER : TPCK_RULE_NAME;

	if (!glob)
		glob = ONE_OF(name, names);
	if (!glob) {
		while (begin > absolute && begin[-1] != '/')
			begin--;
		snprintf(parent, sizeof parent, "%.*s", (int)(name - 1 - begin), begin);
		glob = ONE_OF(parent, folders);
		rule = glob ? TPCK_RULE_FOLDER : TPCK_RULE_UNKNOWN;
	}
	if (glob)
		say(out, size, glob, (int)strlen(glob));
	return rule;
}

static bool is_auto(const char *glob, size_t length)
{
	return length == strlen("auto") && strncmp(glob, "auto", length) == 0;
}

TPCK_AT_START bool tpck_rules_auto(const struct tpck_settings *settings)
{
	const char *next;

	for (const char *at = settings->files; *at; at = next)
		if (is_auto(at, glob_of(at, &next)))
			return true;
	return false;
}

bool tpck_rules_may_be(const struct tpck_settings *settings, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (!*name || strcmp(settings->files, "none") == 0)
		return false;
	return strcmp(settings->files, "auto") != 0 || !ONE_OF(name, never);
}

bool tpck_rules_may_recognise(const struct tpck_settings *settings, const char *path)
{
	const char *slash = strrchr(path, '/'), *begin = slash;
	char parent[TPCK_VIEW_NAME];

	if (strcmp(settings->files, "auto") != 0 || ONE_OF(slash ? slash + 1 : path, names))
		return true;
	while (begin && begin > path && begin[-1] != '/')
		begin--;
	/* The folder's own name is not in the text, or may not be. */
	if (!slash || begin == slash || slash - begin >= (ptrdiff_t)sizeof parent || *begin == '.')
		return true;
	*(char *)mempcpy(parent, begin, (size_t)(slash - begin)) = '\0';
	return ONE_OF(parent, folders);
}

/* One without a slash is for names, else for absolute paths; "auto" is what is recognised. */
enum tpck_rule tpck_rules_name(const struct tpck_settings *settings, const char *absolute, bool tool, char *out, size_t size)
{
	const char *name = strrchr(absolute, '/'), *next;
	enum tpck_rule rule = TPCK_RULE_UNKNOWN;

	say(out, size, "", 0);
	if (strcmp(settings->files, "none") == 0)
		return TPCK_RULE_OFF;
	if (!name || !*++name || name == absolute + 1 || outside(settings, absolute) ||
	    strncmp(name, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) == 0)
		return TPCK_RULE_OUTSIDE;
	if (tpck_rules_excepted(settings, absolute))
		return TPCK_RULE_EXCEPT;
	if (tpck_rules_renamed_past_us(name))
		return TPCK_RULE_PAST_US;
	for (const char *at = settings->files; *at && !tpck_rule_takes(rule); at = next) {
		size_t length = glob_of(at, &next);
		char glob[TPCK_SETTING_TEXT_MAX];

		if (is_auto(at, length)) {
			rule = recognised(absolute, name, out, size);
			/* What says that others are whole waits for them, whoever writes it. */
			if (tool && tpck_rule_takes(rule) && !tpck_rules_points(name))
				rule = TPCK_RULE_TOOL;
			continue;
		}
		snprintf(glob, sizeof glob, "%.*s", (int)length, at);
		if (fnmatch(glob, strchr(glob, '/') ? absolute : name, 0) == 0) {
			rule = TPCK_RULE_ASKED;
			say(out, size, at, (int)length);
		}
	}
	return rule;
}

/* A glob whose last part is nothing but stars says where a file lies, not what it is. */
bool tpck_rules_unsure(enum tpck_rule rule, const char *glob, const char *absolute)
{
	const char *name = strrchr(absolute, '/'), *last = strrchr(glob, '/');

	if (rule == TPCK_RULE_FOLDER)
		return true;
	last = last ? last + 1 : glob;
	return rule == TPCK_RULE_ASKED && !last[strspn(last, "*")] && !ONE_OF(name ? name + 1 : absolute, names);
}

enum tpck_rule tpck_rules_place(int folder, const char *name, bool removed, struct stat *parent, struct stat *there, bool *exists)
{
	if (tpck_sys_fstatat(folder, "", parent, AT_EMPTY_PATH) || tpck_sys_faccessat(folder, ".", W_OK | X_OK))
		return TPCK_RULE_READONLY;
	*exists = !tpck_sys_fstatat(folder, name, there, AT_SYMLINK_NOFOLLOW);
	if (!*exists)
		return errno == ENOENT ? TPCK_RULE_NAME : TPCK_RULE_READONLY;
	if (removed) {
		*exists = false;
		return TPCK_RULE_NAME;
	}
	if (!S_ISREG(there->st_mode))
		return TPCK_RULE_KIND;
	if (there->st_nlink != 1)
		return TPCK_RULE_LINKS;
	if (there->st_uid != geteuid())
		return TPCK_RULE_OWNER;
	return tpck_sys_faccessat(folder, name, W_OK) ? TPCK_RULE_READONLY : TPCK_RULE_NAME;
}

bool tpck_rules_points(const char *name)
{
	static const char *const exactly[] = {
		"latest", "latest_checkpointed_iteration.txt", ".metadata", "metadata.json", "commit_success.txt", "trainer_state.json",
		"dlrover_latest.txt",
	};

	for (size_t i = 0; i < sizeof exactly / sizeof *exactly; i++)
		if (strcmp(name, exactly[i]) == 0)
			return true;
	return strncmp(name, "DONE_", 5) == 0 || strncmp(name, ".metadata.", 10) == 0;
}

/* .tmp and six letters or digits. */
bool tpck_rules_renamed_past_us(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (strncmp(name, ".tmp", 4) != 0 || strlen(name) != 4 + 6)
		return false;
	for (name += 4; isalnum((unsigned char)*name); name++)
		;
	return !*name;
}
