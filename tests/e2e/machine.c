/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that goes by what the machine says of itself. Preloaded into a trainer: with every fifth copy to the host it asks what $MACHINE names,
 * with commas between, and has the device do as much work as the answers say, but with $MACHINE_NOTED. The file `said` gets a line for each: when, what, and the answer.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <unistd.h>

#include "copied.h"

enum { EVERY = 5, TEXT = 30000 };

int cudaMalloc(void **at, size_t bytes);
int cudaMemset(void *at, int value, size_t bytes);

static char text[TEXT];

/* As Python reads a file. */
static void by_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = 1;
	size_t count = 0;

	if (fd < 0)
		sprintf(text, "no file: %d", errno);
	while (fd >= 0 && got > 0 && count < TEXT - 1) {
		got = read(fd, text + count, TEXT - 1 - count);
		count += got > 0 ? (size_t)got : 0;
	}
	text[count] = '\0';
	if (fd >= 0)
		close(fd);
}

/* One that stays open. */
static void kept(const char *path)
{
	static int fd = -1;
	ssize_t got;

	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	lseek(fd, 0, SEEK_SET);
	got = read(fd, text, TEXT - 1);
	text[got > 0 ? got : 0] = '\0';
}

static void by_stream(const char *path)
{
	FILE *from = fopen(path, "r");
	size_t count = 0;

	while (from && fgets(text + count, (int)(TEXT - count), from))
		count += strlen(text + count);
	if (from)
		fclose(from);
	text[count] = '\0';
}

/* As pynvml does it, by the library that $MACHINE_NVML names. */
static void by_nvml(void)
{
	static void *library, *device;
	static int (*temperature)(void *, int, unsigned *), (*use)(void *, unsigned *);
	unsigned degrees = 0, rates[2] = {0};

	if (!library) {
		library = dlopen(getenv("MACHINE_NVML"), RTLD_NOW);
		((int (*)(void))dlsym(library, "nvmlInit_v2"))();
		((int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
		temperature = (int (*)(void *, int, unsigned *))dlsym(library, "nvmlDeviceGetTemperature");
		use = (int (*)(void *, unsigned *))dlsym(library, "nvmlDeviceGetUtilizationRates");
	}
	temperature(device, 0, &degrees);
	use(device, rates);
	sprintf(text, "%u degrees, %u %u in use", degrees, rates[0], rates[1]);
}

/* What came to be in the program's own folder since the last time, in the order in which the kernel tells it. */
static void by_inotify(void)
{
	static int fd = -1;
	char buffer[8192] __attribute__((aligned(8)));
	ssize_t got;

	if (fd < 0) {
		fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		inotify_add_watch(fd, "out", IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE);
	}
	while ((got = read(fd, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got && strlen(text) < TEXT / 2; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len)
			sprintf(text + strlen(text), " %x:%s", ((struct inotify_event *)at)->mask, ((struct inotify_event *)at)->len ? ((struct inotify_event *)at)->name : "");
}

/* Waits until it is told of a file that it has made itself. */
static void by_waiting(void)
{
	static int fd = -1, number;
	char buffer[8192], name[40];

	if (fd < 0) {
		fd = inotify_init1(IN_CLOEXEC);
		inotify_add_watch(fd, "out", IN_CLOSE_WRITE);
	}
	sprintf(name, "out/note-%d", ++number);
	close(open(name, O_CREAT | O_WRONLY, 0644));
	(void)!read(fd, buffer, sizeof buffer);
	sprintf(text, "%d is there", number);
}

/* The order in which a folder tells its names. */
static void by_glob(const char *pattern)
{
	glob_t found = {0};

	if (!glob(pattern, GLOB_NOSORT, NULL, &found))
		for (size_t i = 0; i < found.gl_pathc && strlen(text) < TEXT / 2; i++)
			strcat(strcat(text, " "), found.gl_pathv[i]);
	globfree(&found);
}

static void by_scandir(const char *folder)
{
	struct dirent **names;
	int count = scandir(folder, &names, NULL, NULL);

	for (int i = 0; i < count; i++) {
		if (strlen(text) < TEXT / 2 && names[i]->d_name[0] != '.')
			strcat(strcat(text, " "), names[i]->d_name);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

static void ask(const char *what)
{
	struct rusage usage;
	struct sysinfo info;
	struct statvfs space;
	struct tms use;
	double load[3] = {0};
	cpu_set_t set;
	unsigned processor, node;
	const unsigned char *bytes = (void *)getauxval(AT_RANDOM);
	unsigned char drawn[8] = {0};
	long ticks;
	size_t count = 0, all = 0;

	text[0] = '\0';
	if (strcmp(what, "getrusage") == 0 || strcmp(what, "getrusage by number") == 0) {
		if (strcmp(what, "getrusage") == 0)
			getrusage(RUSAGE_SELF, &usage);
		else
			syscall(SYS_getrusage, RUSAGE_SELF, &usage);
		sprintf(text, "%lld %ld", (long long)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec,
			usage.ru_minflt);
	} else if (strcmp(what, "times") == 0) {
		ticks = times(&use);
		sprintf(text, "%ld %ld", ticks, (long)(use.tms_utime + use.tms_stime));
	} else if (strcmp(what, "sysinfo") == 0) {
		sysinfo(&info);
		sprintf(text, "%lu %lu %d", info.freeram, info.loads[0], info.procs);
	} else if (strcmp(what, "getloadavg") == 0) {
		getloadavg(load, 3);
		sprintf(text, "%f %f %f", load[0], load[1], load[2]);
	} else if (strcmp(what, "sched_getcpu") == 0) {
		getcpu(&processor, &node);
		sprintf(text, "%d %u %u", sched_getcpu(), processor, node);
	} else if (strcmp(what, "affinity") == 0) {
		CPU_ZERO(&set);
		sched_getaffinity(0, sizeof set, &set);
		sprintf(text, "%d %ld", CPU_COUNT(&set), sysconf(_SC_NPROCESSORS_ONLN));
	} else if (strcmp(what, "pages") == 0) {
		sprintf(text, "%ld %ld", sysconf(_SC_PHYS_PAGES), sysconf(_SC_AVPHYS_PAGES));
	} else if (strcmp(what, "space") == 0) {
		statvfs(".", &space);
		sprintf(text, "%llu", (unsigned long long)space.f_bavail);
	} else if (strcmp(what, "getpid") == 0) {
		sprintf(text, "%d", (int)getpid());
	} else if (strcmp(what, "environment") == 0) {
		for (char **variable = environ; *variable; variable++, count++)
			all += strlen(*variable);
		sprintf(text, "%zu variables, %zu bytes", count, all);
	} else if (strcmp(what, "at random") == 0) {
		sprintf(text, "%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3]);
	} else if (strcmp(what, "getrandom by number") == 0) {
		syscall(SYS_getrandom, drawn, sizeof drawn, 0);
		sprintf(text, "%02x%02x%02x%02x", drawn[0], drawn[1], drawn[2], drawn[3]);
	} else if (strcmp(what, "arc4random") == 0) {
		/* glibc has them since 2.36. */
		uint32_t (*number)(void) = (uint32_t (*)(void))dlsym(RTLD_DEFAULT, "arc4random"), (*below)(uint32_t) = (uint32_t (*)(uint32_t))dlsym(RTLD_DEFAULT, "arc4random_uniform");
		void (*buffer)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "arc4random_buf");

		if (number && below && buffer) {
			buffer(drawn, sizeof drawn);
			sprintf(text, "%02x%02x%02x%02x %u %u", drawn[0], drawn[1], drawn[2], drawn[3], number(), below(1000));
		}
	} else if (strcmp(what, "nvml") == 0) {
		by_nvml();
	} else if (strcmp(what, "inotify waits") == 0) {
		by_waiting();
	} else if (strcmp(what, "inotify") == 0) {
		by_inotify();
	} else if (strncmp(what, "read ", 5) == 0) {
		by_read(what + 5);
	} else if (strncmp(what, "kept ", 5) == 0) {
		kept(what + 5);
	} else if (strncmp(what, "stream ", 7) == 0) {
		by_stream(what + 7);
	} else if (strncmp(what, "glob ", 5) == 0) {
		by_glob(what + 5);
	} else if (strncmp(what, "scandir ", 8) == 0) {
		by_scandir(what + 8);
	} else {
		abort();
	}
}

/* What of the answer says who the process is, or what only the kernel's addresses are, is no reason to do otherwise. */
static const char *deciding(const char *what)
{
	char *at = text, *end;

	if (strstr(what, "/self/status"))
		return (at = strstr(text, "VmPeak:")) ? at : text;
	if (!strstr(what, "/self/stat") || !(at = strrchr(text, ')')))
		return text;
	for (int words = 0; words < 7 && at; words++)
		at = strchr(at + 1, ' ');
	end = at;
	for (int words = 0; words < 10 && end; words++)
		end = strchr(end + 1, ' ');
	if (end)
		*end = '\0';
	return at ? at : text;
}

static void go_by_machine(int number)
{
	static void *memory;
	char *list = strdup(getenv("MACHINE")), *rest = list, *what;
	FILE *to = fopen("said", "a");
	uint32_t work = 1;

	if (!memory)
		cudaMalloc(&memory, 65536);
	while ((what = strsep(&rest, ","))) {
		ask(what);
		for (char *at = text; *at; at++)
			*at = *at == '\n' ? '|' : *at;
		if (to)
			fprintf(to, "%d %s: %.400s\n", number, what, text);
		for (const char *at = deciding(what); *at; at++)
			work = work * 31 + (unsigned char)*at;
	}
	if (to)
		fclose(to);
	/* Of the device's work the size is known, so another one would be found. */
	cudaMemset(memory, 0, getenv("MACHINE_NOTED") ? 4 : 4 * (1 + (size_t)work % 10000));
	free(list);
}

static void copied(int kind)
{
	static int copies, inside;

	if (kind != TO_HOST || inside || !getenv("MACHINE"))
		return;
	inside = 1;
	if (++copies % EVERY == 0)
		go_by_machine(copies / EVERY);
	inside = 0;
}
