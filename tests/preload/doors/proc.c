/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's look-up function answers for every name, at many versions and with all flags: the result,
 * the status, and which symbol it is. Where the function is one of the preloaded library's hooks, the symbol it
 * stands for is named all the same, so that the lines are those of a plain run, and goes into a file as well:
 *   proc SYMBOLS VERSIONS HOOKED */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*proc_v2)(const char *, void **, int, unsigned long long, int *);
typedef int (*proc_v1)(const char *, void **, int, unsigned long long);

enum { NAMES = 2048 };
static char *symbols[NAMES];
static void *hooks[NAMES];
static char hooked[NAMES];
static int count;

/* Where an exported entry of the library jumps to: endbr64, then jmp. */
static void *target(const unsigned char *entry)
{
	int32_t far;

	if (!entry || memcmp(entry, "\xf3\x0f\x1e\xfa", 4) != 0)
		return NULL;
	if (entry[4] == 0xeb)
		return (void *)(entry + 6 + (signed char)entry[5]);
	memcpy(&far, entry + 5, sizeof far);
	return entry[4] == 0xe9 ? (void *)(entry + 9 + far) : NULL;
}

static void read_symbols(const char *path, void *library)
{
	char line[128];
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof line, file) && count < NAMES) {
		line[strcspn(line, "\n")] = 0;
		if (!*line || *line == '#')
			continue;
		symbols[count] = strdup(line);
		hooks[count] = library ? target(dlsym(library, line)) : NULL;
		count++;
	}
	if (file)
		fclose(file);
}

static const char *name_of(void *function)
{
	static char other[4200];
	Dl_info info;

	if (!function)
		return "nothing";
	for (int i = 0; i < count; i++)
		if (hooks[i] == function) {
			hooked[i] = 1;
			return symbols[i];
		}
	if (dladdr(function, &info) && info.dli_saddr == function && info.dli_sname)
		return info.dli_sname;
	snprintf(other, sizeof other, "somewhere in %s", info.dli_fname);
	return other;
}

static void ask(proc_v2 v2, proc_v1 v1, const char *name, int version, unsigned long long flags)
{
	void *function = NULL, *again = NULL, *old = NULL;
	int status = -1, result = v2(name, &function, version, flags, &status);
	int result_null = v2(name, &again, version, flags, NULL);
	int result_old = v1(name, &old, version, flags);

	if (result && result_null && result_old && !function && !again && !old && status == -1)
		return;
	printf("%s %d %llu: %d %d %s", name, version, flags, result, status, name_of(function));
	printf(", %d %s", result_null, name_of(again));
	printf(", %d %s\n", result_old, name_of(old));
}

int main(int argc, char **argv)
{
	int versions[64], version_count = 0;
	void *library = getenv("LD_PRELOAD") ? dlopen(strrchr(getenv("LD_PRELOAD"), ':') ? strrchr(getenv("LD_PRELOAD"), ':') + 1
											: getenv("LD_PRELOAD"), RTLD_NOW) : NULL;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	proc_v2 v2 = driver ? (proc_v2)dlsym(driver, "cuGetProcAddress_v2") : NULL;
	proc_v1 v1 = driver ? (proc_v1)dlsym(driver, "cuGetProcAddress") : NULL;
	FILE *file;

	if (argc != 4 || !v2 || !v1)
		return 1;
	read_symbols(argv[1], library);
	file = fopen(argv[2], "r");
	while (file && version_count < 64 && fscanf(file, "%d", &versions[version_count]) == 1)
		version_count++;
	if (file)
		fclose(file);
	for (int i = 0; i < count; i++)
		for (int v = 0; v < version_count; v++)
			for (unsigned long long flags = 0; flags < 3; flags++)
				ask(v2, v1, symbols[i], versions[v], flags);
	/* What is wrong with a question is the driver's to say. */
	ask(v2, v1, "cuNothing", 12000, 0);
	ask(v2, v1, "", 12000, 0);
	ask(v2, v1, "cuMemAlloc", 12000, 64);
	ask(v2, v1, "cuMemAlloc", -1, 0);
	printf("no name: %d, no place: %d %d\n", v2(NULL, (void **)&file, 12000, 0, NULL), v2("cuMemAlloc", NULL, 12000, 0, NULL),
	       v1("cuMemAlloc", NULL, 12000, 0));
	file = fopen(argv[3], "w");
	for (int i = 0; file && i < count; i++)
		if (hooked[i])
			fprintf(file, "%s\n", symbols[i]);
	return file && fclose(file) == 0 ? 0 : 1;
}
