/* SPDX-License-Identifier: Apache-2.0 */
/* Which program this is. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/engine/identity.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/identity_names.h"
#include "runtime/base/layout.h"
#include "runtime/base/text.h"
#include "runtime/engine/place.h"

/* What is long is there by its beginning and a digest, so that the text always fits and nothing is left
 * out of the comparison. */
enum { VALUE_MAX = 1024, VALUE_SHOWN = 200, LIST_MAX = 20 << 10 };

static TPCK_AT_START void add_line(struct tpck_text *text, const char *key, const char *value)
{
	size_t length = strlen(value);
	char escaped[8], brief[VALUE_SHOWN + 80];

	if (length > VALUE_MAX) {
		snprintf(brief, sizeof brief, "%.*s (%zu bytes, digest %016llx)", VALUE_SHOWN, value, length,
			 (unsigned long long)tpck_digest64(value, length, 0));
		value = brief;
	}
	tpck_text_add(text, key);
	tpck_text_bytes(text, " ", 1);
	for (const char *p = value, *run = p;; p++) {
		while (*p >= 0x20 && *p < 0x7f && *p != '\\')
			p++;
		tpck_text_bytes(text, run, (size_t)(p - run));
		if (!*p)
			break;
		snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned char)*p);
		tpck_text_bytes(text, escaped, 4);
		run = p + 1;
	}
	tpck_text_bytes(text, "\n", 1);
}

static TPCK_AT_START void add_number(struct tpck_text *text, const char *key, uint64_t number)
{
	char value[24];
	struct tpck_text shown = tpck_text_in(value, sizeof value);

	tpck_text_number(&shown, number);
	add_line(text, key, value);
}

/* A list of which each entry is a line, as long as there is room; those behind become one line. */
struct list {
	struct tpck_text *text;
	const char *key;
	size_t from; /* where it begins in the text */
	unsigned more;
	uint64_t digest;
};

static TPCK_AT_START bool add_entry(struct list *list, const char *value)
{
	if (list->text->used - list->from < LIST_MAX) {
		add_line(list->text, list->key, value);
		return true;
	}
	list->more++;
	list->digest = tpck_digest64(value, strlen(value) + 1, list->digest);
	return false;
}

/* Of a variable its name, and a digest of the whole: values may be secret, and who reads them in the store is not to test guesses. */
static TPCK_AT_START void add_variable(struct list *list, const uint8_t *key, const char *variable)
{
	const char *equals = strchr(variable, '=');
	size_t length = equals ? (size_t)(equals - variable) : 0;
	char shown[256];
	struct tpck_text text = tpck_text_in(shown, sizeof shown);

	if (equals && length <= sizeof shown - 20)
		tpck_text_bytes(&text, variable, length);
	tpck_text_add(&text, "=");
	tpck_text_hexadecimal(&text, tpck_key_digest(key, variable, strlen(variable)), 16);
	add_entry(list, shown);
}

static TPCK_AT_START void end_list(const struct list *list)
{
	char value[64];

	if (!list->more)
		return;
	snprintf(value, sizeof value, "(%u more, digest %016llx)", list->more, (unsigned long long)list->digest);
	add_line(list->text, list->key, value);
}

/* The build id of the executable, which is the first object. */
static TPCK_AT_START int find_build_id(struct dl_phdr_info *info, size_t size, void *argument)
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
				for (unsigned b = 0; b < note->n_descsz && b < 20; b++) {
					out[2 * b] = "0123456789abcdef"[id[b] >> 4];
					out[2 * b + 1] = "0123456789abcdef"[id[b] & 15];
				}
				return 1;
			}
			at = (const char *)id + ((note->n_descsz + 3) & ~3u);
		}
	}
	return 1;
}

static size_t read_file(const char *path, char *buffer, size_t size)
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t got;

	if (fd < 0)
		return 0;
	got = tpck_sys_read_full(fd, buffer, size);
	tpck_sys_close(fd);
	return got > 0 ? (size_t)got : 0;
}

/* Digest of a script that an interpreter is to run: any argument that is a small regular file whose
 * name says so. */
static TPCK_AT_START void add_script(struct tpck_text *text, const char *argument)
{
	const char *dot = strrchr(argument, '.');
	static char content[1 << 20] TPCK_LARGE;
	char value[64];
	size_t bytes;

	if (!dot || (strcmp(dot, ".py") != 0 && strcmp(dot, ".sh") != 0 && strcmp(dot, ".lua") != 0))
		return;
	bytes = read_file(argument, content, sizeof content);
	snprintf(value, sizeof value, "%016llx", (unsigned long long)tpck_digest64(content, bytes, 0));
	add_line(text, "script-digest", value);
}

/* In line: it is asked some thousand times at the start of every program. */
static inline bool begins(const char *text, const char *with)
{
	while (*with && *with == *text)
		with++, text++;
	return !*with;
}

/* Variables that say where or by whom a program was started, not what it computes. */
static TPCK_AT_START bool matters(const char *variable)
{
	/* By the alphabet. */
	static const char ignored[][24] = {
		"COLUMNS=", "DBUS_", "DISPLAY=", "GROUP_RANK=", "GROUP_WORLD_SIZE=", "HOST=", "HOSTNAME=", "INVOCATION_ID=",
		"JOURNAL_STREAM=", "LD_PRELOAD=", "LINES=", "LOCAL_WORLD_SIZE=", "LS_COLORS=", "MAIL=", "MAKEFLAGS=", "MAKELEVEL=",
		"MAKE_", "MASTER_ADDR=", "MASTER_PORT=", "MFLAGS=", "MPI_LOCALNRANKS=", "NODE_RANK=", "OLDPWD=", "OMPI_", "PMI",
		"PS1=", "PWD=", "SHLVL=", "SLURMD_", "SLURM_", "SRUN_", "SSH_", "STY=", "TERM", "TMPDIR=", "TMUX", "TORCHELASTIC_",
		"TRANSPCKPT", "WINDOWID=", "XDG_", "_=", "_SLURM_", "_TRANSPCKPT_",
	};

	for (size_t i = 0; i < sizeof ignored / sizeof *ignored && ignored[i][0] <= *variable; i++)
		if (begins(variable, ignored[i]))
			return false;
	return true;
}

static TPCK_AT_START const char *value_of(char *const *environment, const char *name)
{
	size_t length = strlen(name);

	for (char *const *e = environment; e && *e; e++)
		if (begins(*e, name) && (*e)[length] == '=')
			return *e + length + 1;
	return NULL;
}

/* Which devices of a node a job gets is Slurm's choice, and another one in each start; how many it gets is the job's. What a
 * user has chosen tells programs apart that run beside each other. Slurm says it twice. */
static TPCK_AT_START bool devices_by_slurm(char *const *environment)
{
	const char *visible = value_of(environment, "CUDA_VISIBLE_DEVICES"), *given = value_of(environment, "GPU_DEVICE_ORDINAL");

	return visible && given && strcmp(visible, given) == 0;
}

/* NULL: the variable is none that lists devices. */
static TPCK_AT_START const char *without_numbers(const char *variable, char *buffer, size_t size)
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

static TPCK_AT_START int by_text(const void *a, const void *b)
{
	const unsigned char *first = *(const unsigned char *const *)a, *second = *(const unsigned char *const *)b;

	return *first != *second ? *first - *second : strcmp((const char *)first, (const char *)second);
}

/* Tells texts that were made with another key apart from those with other values. */
static TPCK_AT_START void add_key(struct tpck_text *text, const uint8_t *key)
{
	tpck_text_add(text, TPCK_IDENTITY_KEY_LINE);
	tpck_text_hexadecimal(text, tpck_key_digest(key, TPCK_IDENTITY_KEY_LINE, strlen(TPCK_IDENTITY_KEY_LINE)), 16);
	tpck_text_add(text, "\n");
}

static TPCK_AT_START int add_environment(struct tpck_text *text, bool one_of_several, char *const *environment, const uint8_t *key)
{
	struct list list = {.text = text, .key = "environment", .from = text->used};
	const char *few[256], **sorted = few;
	bool by_slurm = devices_by_slurm(environment);
	char shown[64];
	size_t count = 0;

	for (char *const *e = environment; e && *e; e++)
		count++;
	if (count > sizeof few / sizeof *few)
		sorted = calloc(count, sizeof *sorted);
	if (!sorted)
		return -ENOMEM;
	count = 0;
	for (char *const *e = environment; e && *e; e++)
		if (matters(*e) && !(one_of_several && tpck_place_tells(*e)))
			sorted[count++] = *e;
	qsort(sorted, count, sizeof *sorted, by_text);
	for (size_t i = 0; i < count; i++)
		add_variable(&list, key, by_slurm && without_numbers(sorted[i], shown, sizeof shown) ? shown : sorted[i]);
	end_list(&list);
	if (sorted != few)
		free(sorted);
	return 0;
}

static TPCK_AT_START void add_arguments(struct tpck_text *text, char *const *arguments)
{
	struct list list = {.text = text, .key = "argument", .from = text->used};

	for (char *const *a = arguments; a && *a; a++)
		if (add_entry(&list, *a) && a != arguments)
			add_script(text, *a);
	end_list(&list);
}

/* As they were at the start: the folder, the executable, and behind them room for both with a newline between. Short ones share
 * a page. */
enum { PATH_BYTES = 4096 };
static char texts[4 * PATH_BYTES + 1] TPCK_LARGE_USED;
static const char *executable;

TPCK_AT_START const char *tpck_identity_folder(void)
{
	static bool known;

	/* Not told by the text: a page that is read and then written costs twice. */
	if (!known && tpck_sys_getcwd(texts, PATH_BYTES) < 0)
		texts[0] = '\0';
	known = true;
	return texts;
}

static TPCK_AT_START void make_job(const struct tpck_settings *settings, char job[TPCK_JOB_MAX])
{
	const char *slash = strrchr(executable, '/');
	size_t length = strlen(executable), folder_length = strlen(texts);
	char *both = texts + (executable - texts) + length + 1;
	struct tpck_text text = tpck_text_in(job, TPCK_JOB_MAX);

	if (settings->job[0]) {
		tpck_text_bytes(&text, settings->job, strnlen(settings->job, TPCK_SETTINGS_JOB_MAX));
	} else {
		memcpy(both, executable, length);
		both[length] = '\n';
		memcpy(both + length + 1, texts, folder_length);
		slash = slash ? slash + 1 : executable;
		tpck_text_bytes(&text, slash, strnlen(slash, 60));
		tpck_text_add(&text, "-");
		tpck_text_hexadecimal(&text, tpck_digest64(both, length + 1 + folder_length, 0), 8);
	}
	tpck_settings_job_clean(job);
}

TPCK_AT_START int tpck_identity_job(const struct tpck_settings *settings, char job[TPCK_JOB_MAX])
{
	char *at = texts + strlen(tpck_identity_folder()) + 1;

	if (tpck_sys_readlink("/proc/self/exe", at, PATH_BYTES - 1) < 0)
		return -errno;
	executable = at;
	make_job(settings, job);
	return 0;
}

TPCK_AT_START long tpck_identity_make(const char *job, uint32_t rank, uint32_t world, char *const *arguments, char *const *environment,
				      const uint8_t key[TPCK_KEY_BYTES], char *at, size_t size)
{
	struct tpck_text text = tpck_text_in(at, size);
	char value[128], build_id[48] = "";
	struct tpck_text digest;
	struct stat found = {0};

	add_number(&text, "user", getuid());
	add_line(&text, "job", job);
	add_number(&text, "rank", rank);
	add_line(&text, "ordinal", "0");
	/* Not all launchers say so in a variable that counts. */
	add_number(&text, "ranks", world);
	add_line(&text, "executable", executable);
	dl_iterate_phdr(find_build_id, build_id);
	tpck_sys_fstatat(AT_FDCWD, executable, &found, 0);
	digest = tpck_text_in(value, sizeof value);
	tpck_text_add(&digest, build_id);
	tpck_text_add(&digest, "-");
	tpck_text_number(&digest, (uint64_t)found.st_size);
	add_line(&text, "executable-digest", value);
	add_line(&text, "folder", texts);
	add_arguments(&text, arguments);
	add_key(&text, key);
	if (add_environment(&text, world > 1, environment, key))
		return -ENOMEM;
	add_line(&text, "library", PACKAGE_VERSION);
	return text.cut ? -ENOSPC : (long)text.used;
}
