/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are taken, by their names. */
#include "config.h"

#include <ctype.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/files/files_private.h"

/* What is never a checkpoint, wherever it lies: what is appended to while others read it, and what is changed in
 * place under locks. */
static const char *const never[] = {
	"*.log", "events.out.tfevents.*", "*.jsonl", "*.csv", "*.lock", "*.lck", "*.pid", "*.sock", "*.sqlite*", "*.db",
	"*.db-*", "*.lmdb", "*.mdb", "*.py", "*.pyc", "*.so", "*.o",
};
/* What PyTorch, its savers, JAX's and C programs call checkpoints, and the files that point to the latest. */
static const char *const names[] = {
	"*.pt", "*.pth", "*.ckpt", "*.safetensors", "*.distcp", "*.npz", "*.h5", "*.hdf5", "*.keras", "*.msgpack", "*.pdparams",
	"*.pdopt", "*.pt.*", "*.ckpt.*", "*.safetensors.*", "model*.bin", "state*.bin", "optimizer*.bin", "pytorch_model*.bin",
	"scheduler*.bin", "random_states_*.pkl", "latest", "latest_checkpointed_iteration.txt", "DONE_*", ".metadata",
	".metadata.*", "metadata.json", "commit_success.txt", "trainer_state.json", "dlrover_latest.txt",
};
/* Folders that hold one checkpoint: all that is written into them. */
static const char *const folders[] = {
	"checkpoint-[0-9]*", "checkpoint_[0-9]*", "tmp-checkpoint-[0-9]*", "global_step[0-9]*", "iter_[0-9]*", "step-[0-9]*",
	"step_[0-9]*", "step[0-9]*", "epoch-[0-9]*", "epoch_[0-9]*", "ckpt-[0-9]*", "ckpt_[0-9]*",
};

static bool one_of(const char *name, const char *const *globs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fnmatch(globs[i], name, 0) == 0)
			return true;
	return false;
}
#define ONE_OF(name, globs) one_of(name, globs, sizeof globs / sizeof *globs)

bool tpck_files_absolute(int folder, const char *path, char *out, size_t size)
{
	char link[40];
	ssize_t got = 0;
	int written;

	if (*path != '/' && folder == AT_FDCWD) {
		got = syscall(SYS_getcwd, out, size) - 1;
	} else if (*path != '/') {
		snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
		got = syscall(SYS_readlink, link, out, size);
	}
	if (got < 0 || (size_t)got >= size)
		return false;
	while (path[0] == '.' && path[1] == '/')
		path += 2;
	written = snprintf(out + got, size - (size_t)got, "%s%s", got ? "/" : "", path);
	return written >= 0 && (size_t)written < size - (size_t)got;
}

static bool below(const char *path, const char *folder)
{
	size_t length = strlen(folder);

	return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* The kernel's own, and ours. */
static bool outside(const char *absolute)
{
	char folder[TPCK_SETTING_TEXT_MAX + 16], kind[TPCK_TIER_KIND];

	if (below(absolute, "/proc") || below(absolute, "/sys") || below(absolute, "/dev") || below(absolute, "/run"))
		return true;
	tpck_settings_shm(tpck_files_settings, folder, sizeof folder);
	if (below(absolute, folder))
		return true;
	for (unsigned i = 0; tpck_settings_tier(tpck_files_settings, i, kind, folder, sizeof folder); i++)
		if (below(absolute, folder))
			return true;
	return false;
}

/* TRANSPCKPT_FILES: globs with colons between them. One without a slash is for names, else for absolute paths. */
static bool listed(const char *absolute, const char *name)
{
	const char *globs = tpck_files_settings->files;

	for (const char *end; *globs; globs = *end ? end + 1 : end) {
		char glob[TPCK_SETTING_TEXT_MAX];

		end = strchrnul(globs, ':');
		snprintf(glob, sizeof glob, "%.*s", (int)(end - globs), globs);
		if (fnmatch(glob, strchr(glob, '/') ? absolute : name, 0) == 0)
			return true;
	}
	return false;
}

static bool recognised(const char *absolute, const char *name)
{
	char parent[TPCK_VIEW_NAME];
	const char *begin = name - 1;

	if (ONE_OF(name, never))
		return false;
	if (ONE_OF(name, names))
		return true;
	while (begin > absolute && begin[-1] != '/')
		begin--;
	snprintf(parent, sizeof parent, "%.*s", (int)(name - 1 - begin), begin);
	return ONE_OF(parent, folders);
}

/* .tmp and six letters or digits. */
bool tpck_files_renamed_past_us(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (strncmp(name, ".tmp", 4) != 0 || strlen(name) != 4 + 6)
		return false;
	for (name += 4; isalnum((unsigned char)*name); name++)
		;
	return !*name;
}

bool tpck_files_wanted(int folder, const char *path)
{
	const char *setting = tpck_files_settings->files, *name;
	char absolute[TPCK_FILES_PATH];

	if (strcmp(setting, "none") == 0 || !tpck_files_absolute(folder, path, absolute, sizeof absolute))
		return false;
	name = strrchr(absolute, '/');
	if (!name || !*++name || name == absolute + 1 || outside(absolute))
		return false;
	if (strncmp(name, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) == 0 || tpck_files_renamed_past_us(name))
		return false;
	return strcmp(setting, "auto") == 0 ? recognised(absolute, name) : listed(absolute, name);
}
