/* SPDX-License-Identifier: Apache-2.0 */
/* Which program this is. */
#include "config.h"

#include "runtime/engine/identity.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/digest.h"

/* What is long is there by its beginning and a digest, so that the text always fits and nothing is left
 * out of the comparison. */
enum { VALUE_MAX = 1024, VALUE_SHOWN = 200, LIST_MAX = 20 << 10 };

struct text {
	char *at;
	size_t size, used;
	bool cut;
};

static void add_bytes(struct text *text, const char *bytes, size_t count)
{
	if (text->used + count >= text->size) {
		text->cut = true;
		return;
	}
	memcpy(text->at + text->used, bytes, count);
	text->used += count;
	text->at[text->used] = '\0';
}

static void add_line(struct text *text, const char *key, const char *value)
{
	size_t length = strlen(value);
	char escaped[8], brief[VALUE_SHOWN + 80];

	if (length > VALUE_MAX) {
		snprintf(brief, sizeof brief, "%.*s (%zu bytes, digest %016llx)", VALUE_SHOWN, value, length,
			 (unsigned long long)tpck_digest64(value, length, 0));
		value = brief;
	}
	add_bytes(text, key, strlen(key));
	add_bytes(text, " ", 1);
	for (const char *p = value, *run = p;; p++) {
		if (*p >= 0x20 && *p < 0x7f && *p != '\\')
			continue;
		add_bytes(text, run, (size_t)(p - run));
		if (!*p)
			break;
		snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned char)*p);
		add_bytes(text, escaped, 4);
		run = p + 1;
	}
	add_bytes(text, "\n", 1);
}

/* A list of which each entry is a line, as long as there is room; those behind become one line. */
struct list {
	struct text *text;
	const char *key;
	size_t from; /* where it begins in the text */
	unsigned more;
	uint64_t digest;
};

static bool add_entry(struct list *list, const char *value)
{
	if (list->text->used - list->from < LIST_MAX) {
		add_line(list->text, list->key, value);
		return true;
	}
	list->more++;
	list->digest = tpck_digest64(value, strlen(value) + 1, list->digest);
	return false;
}

static void end_list(const struct list *list)
{
	char value[64];

	snprintf(value, sizeof value, "(%u more, digest %016llx)", list->more, (unsigned long long)list->digest);
	if (list->more)
		add_line(list->text, list->key, value);
}

/* The build id of the executable, which is the first object. */
static int find_build_id(struct dl_phdr_info *info, size_t size, void *argument)
{
	char *out = argument;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		const char *at, *end;

		if (segment->p_type != PT_NOTE)
			continue;
		at = (const char *)(info->dlpi_addr + segment->p_vaddr);
		for (end = at + segment->p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
			const ElfW(Nhdr) *note = (const void *)at;
			const char *name = at + sizeof *note;
			const unsigned char *id = (const unsigned char *)name + ((note->n_namesz + 3) & ~3u);

			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
				for (unsigned b = 0; b < note->n_descsz && b < 20; b++)
					sprintf(out + 2 * b, "%02x", id[b]);
				return 1;
			}
			at = (const char *)id + ((note->n_descsz + 3) & ~3u);
		}
	}
	return 1;
}

static size_t read_file(const char *path, char *buffer, size_t size)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	size_t used = 0;
	ssize_t got;

	if (fd < 0)
		return 0;
	while (used < size && (got = syscall(SYS_read, fd, buffer + used, size - used)) > 0)
		used += (size_t)got;
	syscall(SYS_close, fd);
	return used;
}

/* Digest of a script that an interpreter is to run: any argument that is a small regular file whose
 * name says so. */
static void add_script(struct text *text, const char *argument)
{
	const char *dot = strrchr(argument, '.');
	static char content[1 << 20];
	char value[64];
	size_t bytes;

	if (!dot || (strcmp(dot, ".py") != 0 && strcmp(dot, ".sh") != 0 && strcmp(dot, ".lua") != 0))
		return;
	bytes = read_file(argument, content, sizeof content);
	snprintf(value, sizeof value, "%016llx", (unsigned long long)tpck_digest64(content, bytes, 0));
	add_line(text, "script-digest", value);
}

/* Variables that say where or by whom a program was started, not what it computes. */
static bool matters(const char *variable)
{
	static const char *const ignored[] = {
		"TRANSPCKPT", "_TRANSPCKPT_", "LD_PRELOAD=", "SLURM_", "SLURMD_", "_SLURM_", "SRUN_", "PMI", "OMPI_",
		"PWD=", "OLDPWD=", "SHLVL=", "_=", "TERM",
		"SSH_", "XDG_", "COLUMNS=", "LINES=", "DISPLAY=", "DBUS_", "WINDOWID=", "TMUX", "STY=", "PS1=",
		"HOSTNAME=", "HOST=", "MASTER_ADDR=", "MASTER_PORT=", "TORCHELASTIC_", "INVOCATION_ID=",
		"GROUP_RANK=", "GROUP_WORLD_SIZE=", "LOCAL_WORLD_SIZE=", "MPI_LOCALNRANKS=", "NODE_RANK=",
		"JOURNAL_STREAM=", "MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=", "MAKE_", "LS_COLORS=", "MAIL=", "TMPDIR=",
	};

	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		if (*variable == *ignored[i] && strncmp(variable, ignored[i], strlen(ignored[i])) == 0)
			return false;
	return true;
}

static const char *value_of(char *const *environment, const char *name)
{
	size_t length = strlen(name);

	for (char *const *e = environment; e && *e; e++)
		if (strncmp(*e, name, length) == 0 && (*e)[length] == '=')
			return *e + length + 1;
	return NULL;
}

/* Which devices of a node a job gets is Slurm's choice, and another one in each start; how many it gets is the job's. What a
 * user has chosen tells programs apart that run beside each other. Slurm says it twice. */
static bool devices_by_slurm(char *const *environment)
{
	const char *visible = value_of(environment, "CUDA_VISIBLE_DEVICES"), *given = value_of(environment, "GPU_DEVICE_ORDINAL");

	return visible && given && strcmp(visible, given) == 0;
}

/* NULL: the variable is none that lists devices. */
static const char *without_numbers(const char *variable, char *buffer, size_t size)
{
	static const char *const lists[] = {"CUDA_VISIBLE_DEVICES=", "GPU_DEVICE_ORDINAL=", "ROCR_VISIBLE_DEVICES=", "ZE_AFFINITY_MASK="};

	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		size_t length = strlen(lists[i]);
		unsigned count = variable[length] != '\0';

		if (strncmp(variable, lists[i], length) != 0)
			continue;
		for (const char *p = variable + length; *p; p++)
			count += *p == ',';
		snprintf(buffer, size, "%s(%u given by Slurm)", lists[i], count);
		return buffer;
	}
	return NULL;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int add_environment(struct text *text, char *const *environment)
{
	struct list list = {.text = text, .key = "environment", .from = text->used};
	const char **sorted;
	bool by_slurm = devices_by_slurm(environment);
	char shown[64];
	size_t count = 0;

	for (char *const *e = environment; e && *e; e++)
		count++;
	sorted = calloc(count + 1, sizeof *sorted);
	if (!sorted)
		return -ENOMEM;
	count = 0;
	for (char *const *e = environment; e && *e; e++)
		if (matters(*e))
			sorted[count++] = *e;
	qsort(sorted, count, sizeof *sorted, by_text);
	for (size_t i = 0; i < count; i++)
		add_entry(&list, by_slurm && without_numbers(sorted[i], shown, sizeof shown) ? shown : sorted[i]);
	end_list(&list);
	free(sorted);
	return 0;
}

static void add_arguments(struct text *text, char *const *arguments)
{
	struct list list = {.text = text, .key = "argument", .from = text->used};

	for (char *const *a = arguments; a && *a; a++)
		if (add_entry(&list, *a) && a != arguments)
			add_script(text, *a);
	end_list(&list);
}

/* As they were when the job's name was made. */
static char executable[4096], folder[4096];

static void make_job(const struct tpck_settings *settings, char job[TPCK_JOB_MAX])
{
	const char *slash = strrchr(executable, '/');
	char both[8300];
	int length;

	if (settings->job[0]) {
		snprintf(job, TPCK_JOB_MAX, "%.*s", TPCK_SETTINGS_JOB_MAX, settings->job);
	} else {
		length = snprintf(both, sizeof both, "%s\n%s", executable, folder);
		snprintf(job, TPCK_JOB_MAX, "%.60s-%08x", slash ? slash + 1 : executable,
			 (unsigned)tpck_digest64(both, (size_t)length, 0));
	}
	tpck_settings_job_clean(job);
}

int tpck_identity_job(const struct tpck_settings *settings, char job[TPCK_JOB_MAX])
{
	if (syscall(SYS_readlink, "/proc/self/exe", executable, sizeof executable - 1) < 0)
		return -errno;
	syscall(SYS_getcwd, folder, sizeof folder);
	make_job(settings, job);
	return 0;
}

long tpck_identity_make(const char *job, uint32_t rank, uint32_t world, char *const *arguments, char *const *environment, char *at, size_t size)
{
	struct text text = {at, size, 0, false};
	char value[128], build_id[48] = "";
	struct stat found = {0};

	snprintf(value, sizeof value, "%u", (unsigned)getuid());
	add_line(&text, "user", value);
	add_line(&text, "job", job);
	snprintf(value, sizeof value, "%u", rank);
	add_line(&text, "rank", value);
	add_line(&text, "ordinal", "0");
	/* Not all launchers say so in a variable that counts. */
	snprintf(value, sizeof value, "%u", world);
	add_line(&text, "ranks", value);
	add_line(&text, "executable", executable);
	dl_iterate_phdr(find_build_id, build_id);
	syscall(SYS_newfstatat, AT_FDCWD, executable, &found, 0);
	snprintf(value, sizeof value, "%s-%lld", build_id, (long long)found.st_size);
	add_line(&text, "executable-digest", value);
	add_line(&text, "folder", folder);
	add_arguments(&text, arguments);
	if (add_environment(&text, environment))
		return -ENOMEM;
	add_line(&text, "library", PACKAGE_VERSION);
	return text.cut ? -ENOSPC : (long)text.used;
}
