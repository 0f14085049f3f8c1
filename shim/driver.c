/* SPDX-License-Identifier: Apache-2.0 */
/* The real driver library. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "shim/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "shim/table.h"

#define DRIVER_NAME "libcuda.so.1"
#define FORWARDER_END "/transpckpt/" DRIVER_NAME

static void *_Atomic driver;
static char driver_path[512] TPCK_LARGE; /* two threads that bind at once write the same */
static _Atomic int state; /* 0 not tried, 1 bound, -1 none */
extern void *tpck_dlsym_next, *tpck_dlopen_next; /* doors_x86_64.S jumps through them */
void *tpck_dlsym_next, *tpck_dlopen_next;

static TPCK_AT_START void find_libc(void)
{
	if (tpck_dlsym_next)
		return;
	/* dlsym itself is hooked, dlvsym is not. */
	void *next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

	if (!next)
		next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	/* Without a version: another preloaded library's dlopen, which has none, is passed over with one. */
	tpck_dlopen_next = ((void *(*)(void *, const char *))next)(RTLD_NEXT, "dlopen");
	tpck_dlsym_next = next;
}

__attribute__((constructor(101))) static void find_early(void)
{
	static volatile bool first __attribute__((unused));

	/* The page with what is found is written before it is read, which would cost it twice. */
	first = true;
	find_libc();
}

TPCK_AT_START void *tpck_real_dlsym(void *handle, const char *symbol)
{
	find_libc();
	return ((void *(*)(void *, const char *))tpck_dlsym_next)(handle, symbol);
}

void *tpck_real_dlopen(const char *path, int flags)
{
	find_libc();
	return ((void *(*)(const char *, int))tpck_dlopen_next)(path, flags);
}

static bool is_driver(const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t length = strlen(path), end = sizeof FORWARDER_END - 1;

	/* By its own folder alone: the tree or the user may well be called transpckpt. */
	return slash && strncmp(slash + 1, "libcuda.so", 10) == 0 &&
	       (length < end || strcmp(path + length - end, FORWARDER_END) != 0);
}

static int find_mapped(struct dl_phdr_info *info, size_t size, void *argument)
{
	char *path = argument;

	(void)size;
	if (!info->dlpi_name || !is_driver(info->dlpi_name))
		return 0;
	snprintf(path, 4096, "%s", info->dlpi_name);
	return 1;
}

int tpck_driver_mapped(void)
{
	char path[4096];

	return state > 0 || dl_iterate_phdr(find_mapped, path);
}

static bool readable(const char *path)
{
	return is_driver(path) && !tpck_sys_faccessat(AT_FDCWD, path, R_OK);
}

/* The folders of LD_LIBRARY_PATH, as the loader would go through them. */
static bool find_in_path(char *out, size_t size)
{
	const char *folders = getenv("LD_LIBRARY_PATH");

	while (folders && *folders) {
		size_t length = strcspn(folders, ":;");

		snprintf(out, size, "%.*s/" DRIVER_NAME, (int)length, folders);
		if (length && readable(out))
			return true;
		folders += length + (folders[length] != '\0');
	}
	return false;
}

/* /etc/ld.so.cache in the format that glibc has written since 2.2: a header with a magic, a count, then
 * rows of (flags, offset of key, offset of value, os version, hwcap), offsets from the header. */
static bool find_in_cache(char *out, size_t size)
{
	static const char magic[] = "glibc-ld.so.cache1.1";
	struct row {
		int32_t flags;
		uint32_t key, value, os_version;
		uint64_t hwcap;
	};
	int fd = tpck_sys_openat(AT_FDCWD, "/etc/ld.so.cache", O_RDONLY | O_CLOEXEC, 0);
	struct stat found;
	const char *at, *cache;
	bool result = false;

	if (fd < 0)
		return false;
	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || found.st_size < 64) {
		tpck_sys_close(fd);
		return false;
	}
	at = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	tpck_sys_close(fd);
	if (at == MAP_FAILED)
		return false;
	cache = memmem(at, (size_t)found.st_size, magic, sizeof magic - 1);
	if (cache) {
		uint64_t bytes = (uint64_t)(at + found.st_size - cache);
		uint32_t count;
		const struct row *rows = (const void *)(cache + 48);

		memcpy(&count, cache + 20, sizeof count);
		for (uint32_t i = 0; i < count && 48 + (i + 1) * sizeof *rows <= bytes && !result; i++) {
			struct row row;

			memcpy(&row, &rows[i], sizeof row);
			if (row.key >= bytes || row.value >= bytes || strcmp(cache + row.key, DRIVER_NAME) != 0)
				continue;
			snprintf(out, size, "%s", cache + row.value);
			result = readable(out);
		}
	}
	munmap((void *)(uintptr_t)at, (size_t)found.st_size);
	return result;
}

static bool find_in_standard(char *out, size_t size)
{
	static const char *const folders[] = {
		"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
		"/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/usr/lib",
	};

	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		snprintf(out, size, "%s/" DRIVER_NAME, folders[i]);
		if (readable(out))
			return true;
	}
	return false;
}

/* Where the loader would look for the program itself: its RUNPATH too. */
static bool find_for_program(char *out, size_t size)
{
	void *program = tpck_real_dlopen(NULL, RTLD_LAZY);
	Dl_serinfo head, *folders;
	bool result = false;

	if (!program || dlinfo(program, RTLD_DI_SERINFOSIZE, &head))
		return false;
	folders = malloc(head.dls_size);
	if (folders && !dlinfo(program, RTLD_DI_SERINFOSIZE, folders) && !dlinfo(program, RTLD_DI_SERINFO, folders))
		for (unsigned i = 0; i < folders->dls_cnt && !result; i++) {
			snprintf(out, size, "%s/" DRIVER_NAME, folders->dls_serpath[i].dls_name);
			result = readable(out);
		}
	free(folders);
	return result;
}

static bool find(char *out, size_t size)
{
	return dl_iterate_phdr(find_mapped, out) || find_in_path(out, size) || find_in_cache(out, size) ||
	       find_in_standard(out, size) || find_for_program(out, size);
}

int tpck_driver_exists(void)
{
	char path[4096] = "";

	return state > 0 || find(path, sizeof path);
}

/* Where the driver's code lies. */
static _Atomic uintptr_t code_from, code_to;

static int find_code(struct dl_phdr_info *info, size_t size, void *path)
{
	(void)size;
	if (!info->dlpi_name || strcmp(info->dlpi_name, path) != 0)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		code_to = info->dlpi_addr + part->p_vaddr + part->p_memsz;
		code_from = info->dlpi_addr + part->p_vaddr;
	}
	return 1;
}

TPCK_AT_START int tpck_driver_has(const void *code)
{
	return (uintptr_t)code >= code_from && (uintptr_t)code < code_to;
}

static int find_forwarder(struct dl_phdr_info *info, size_t size, void *unused)
{
	const size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0, end = sizeof FORWARDER_END - 1;

	(void)size;
	(void)unused;
	return length >= end && strcmp(info->dlpi_name + length - end, FORWARDER_END) == 0;
}

static int bind_now(void)
{
	/* Where the forwarder stands for it, whose symbols all libraries see: one that is linked to a call which that does not list, and opened
	 * later, finds it in the driver itself. */
	const int scope = dl_iterate_phdr(find_forwarder, NULL) ? RTLD_GLOBAL : RTLD_LOCAL;
	char path[4096] = "";
	const struct tpck_hook_row *rows;
	size_t count;
	void *found;

	if (!find(path, sizeof path))
		return -1;
	found = tpck_real_dlopen(path, RTLD_NOW | scope);
	if (!found) {
		tpck_log_info("cannot load %s: %s", path, dlerror());
		return -1;
	}
	rows = tpck_table_rows(&count);
	for (size_t i = 0; i < count; i++)
		*rows[i].real = tpck_real_dlsym(found, rows[i].symbol);
	driver = found;
	dl_iterate_phdr(find_code, path);
	snprintf(driver_path, sizeof driver_path, "%s", path);
	tpck_log_debug("the driver is %s", path);
	return 1;
}

const char *tpck_driver_path(void)
{
	return driver_path;
}

/* Without a lock: a thread that runs a library's constructor holds the loader's, and another that binds
 * needs it. Two that bind at once find and write the same. */
int tpck_driver_bind(void)
{
	/* A program may bring a driver along later, from a folder that only it knows. */
	if (!state || (state < 0 && tpck_driver_mapped())) {
		int result = bind_now();

		if (state <= 0)
			state = result;
	}
	return state > 0 ? 0 : -ENOENT;
}

void *tpck_driver_symbol(const char *symbol)
{
	return tpck_driver_bind() ? NULL : tpck_real_dlsym(driver, symbol);
}
