/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of memory control groups, as the kernel's files say them; in a folder that stands for the root. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/cgroup.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

static char root[] = "/tmp/tpck-cgroup.XXXXXX";

static void put(const char *path, const char *text)
{
	char at[400];
	FILE *file;

	snprintf(at, sizeof at, "%s%s", root, path);
	for (char *slash = at + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		mkdir(at, 0700);
	}
	file = fopen(at, "w");
	if (!file || fputs(text, file) < 0 || fclose(file))
		abort();
}

static void start_again(void)
{
	char command[80];

	snprintf(command, sizeof command, "rm -rf %s/proc %s/sys", root, root);
	if (system(command))
		abort();
}

static struct tpck_cgroup_room room(int pid)
{
	struct tpck_cgroup group;

	(void)tpck_cgroup_of(root, pid, &group);
	return tpck_cgroup_room(root, &group);
}

static void version_2(void)
{
	struct tpck_cgroup_room got;

	start_again();
	put("/proc/self/cgroup", "0::/slurm/job_1/step_0\n");
	put("/sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n");
	put("/sys/fs/cgroup/slurm/job_1/step_0/memory.current", "900\n");
	check(room(0).bytes == UINT64_MAX, "version 2: none is limited");
	put("/sys/fs/cgroup/slurm/job_1/memory.max", "1600\n");
	put("/sys/fs/cgroup/slurm/job_1/memory.current", "1000\n");
	got = room(0);
	check(got.bytes == 600 && got.reserve == 200, "the one above is");
	check(tpck_cgroup_has(&got, 400) && !tpck_cgroup_has(&got, 401), "of what it leaves an eighth of the limit is others'");
	put("/sys/fs/cgroup/slurm/job_1/memory.stat",
	    "anon 500\nfile 400\nshmem 100\nfile_mapped 7\ninactive_file 250\nactive_file 50\nslab 3\n");
	check(room(0).bytes == 900, "page cache can be taken back");
	put("/sys/fs/cgroup/slurm/job_1/step_0/memory.max", "1000\n");
	check(room(0).bytes == 100, "the tightest counts");
	put("/sys/fs/cgroup/slurm/job_1/step_0/memory.current", "1001\n");
	got = room(0);
	check(got.bytes == 0 && !tpck_cgroup_has(&got, 0), "one that is over its limit has nothing");
	put("/proc/7/cgroup", "0::/slurm\n");
	check(room(7).bytes == UINT64_MAX && room(8).bytes == UINT64_MAX, "of another process; of one that is not there");
	/* The host's path, and the group's own files at the mount. */
	start_again();
	put("/proc/self/cgroup", "0::/docker/0123/abc\n");
	put("/sys/fs/cgroup/memory.max", "5000\n");
	put("/sys/fs/cgroup/memory.current", "1000\n");
	check(room(0).bytes == 4000, "in a container");
}

static void version_1(void)
{
	start_again();
	put("/proc/self/cgroup", "12:cpuset:/x\n9:name=systemd:/memory\n4:hugetlb,memory:/a/b\n0::/\n");
	put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "700\n");
	check(room(0).bytes == UINT64_MAX, "version 1: none is limited");
	put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000\n");
	put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1500\n");
	put("/sys/fs/cgroup/memory/a/memory.stat",
	    "cache 9\ninactive_file 1\nactive_file 1\nhierarchical_memory_limit 2000\ntotal_inactive_file 300\ntotal_active_file 200\n");
	check(room(0).bytes == 1000, "the one above is, and the cache of all below it does not count");
}

static void machine(void)
{
	struct tpck_cgroup_room got;

	start_again();
	put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1 kB\nMemAvailable:    8388608 kB\n");
	got = room(0);
	check(got.bytes == 8ull << 30 && got.reserve == 2ull << 30, "a machine without groups: what is available, and an eighth for others");
	put("/proc/meminfo", "MemTotal:       2147483648 kB\nMemAvailable:    1073741824 kB\n");
	check(room(0).reserve == 16ull << 30, "of a large one 16 GiB");
	put("/proc/self/cgroup", "0::/g\n");
	put("/sys/fs/cgroup/g/memory.max", "1099511627776\n");
	put("/sys/fs/cgroup/g/memory.current", "0\n");
	got = room(0);
	check(got.bytes == 1ull << 40 && got.reserve == 1ull << 37, "the group's reserve is larger: it leaves less");
}

static void odd(void)
{
	char text[5000];

	start_again();
	check(room(0).bytes == UINT64_MAX, "no /proc");
	put("/proc/self/cgroup", "");
	check(room(0).bytes == UINT64_MAX, "no groups");
	put("/proc/self/cgroup", "nonsense\n4:memory\n:\n");
	check(room(0).bytes == UINT64_MAX, "lines that say nothing");
	memset(text, 'a', sizeof text);
	memcpy(text, "0::/", 4);
	text[sizeof text - 1] = '\0';
	put("/proc/self/cgroup", text);
	check(room(0).bytes == UINT64_MAX, "a path that is too long");
}

static void together(void)
{
	struct tpck_cgroup group;
	char which[TPCK_CGROUP_PATH];

	start_again();
	put("/proc/self/cgroup", "0::/slurm/job_1/step_0\n");
	put("/sys/fs/cgroup/slurm/job_1/step_0/memory.oom.group", "0\n");
	(void)tpck_cgroup_of(root, 0, &group);
	check(!tpck_cgroup_ends_together(root, &group, which), "one process is ended where memory is full");
	put("/sys/fs/cgroup/slurm/job_1/memory.oom.group", "1\n");
	check(tpck_cgroup_ends_together(root, &group, which) && strcmp(which, "/slurm/job_1") == 0, "or all of a group, which may be one above");
	start_again();
	put("/proc/self/cgroup", "0::/docker/0123/abc\n");
	put("/sys/fs/cgroup/memory.oom.group", "1\n");
	(void)tpck_cgroup_of(root, 0, &group);
	check(tpck_cgroup_ends_together(root, &group, which), "in a container");
	put("/proc/self/cgroup", "0::/\n");
	(void)tpck_cgroup_of(root, 0, &group);
	check(tpck_cgroup_ends_together(root, &group, which), "in a group that is the mount's");
}

int main(void)
{
	if (!mkdtemp(root))
		return 1;
	version_2();
	version_1();
	machine();
	odd();
	together();
	start_again();
	rmdir(root);
	return tap_done();
}
