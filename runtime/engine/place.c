/* SPDX-License-Identifier: Apache-2.0 */
/* The variables and the device that say where a rank is: recorded, and given back. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/engine/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"

/* More than the longest of `names` with a number. */
enum { TEXT_MAX = 1024, VALUE_MAX = 40, DEVICES_MAX = 64, LIST_MAX = 4096 };

/* Those that say which rank of its node this is come first, the nearest launcher's before others'. */
enum { LOCAL_NAMES = 4 };
static const char *const names[] = {
	"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID",
	"LOCAL_WORLD_SIZE", "LOCAL_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "CROSS_RANK", "CROSS_SIZE",
	"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK", "MPI_LOCALNRANKS", "SLURM_NODEID",
};
#define VISIBLE "CUDA_VISIBLE_DEVICES"
static const char *const lists[] = {VISIBLE, "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"};

extern char **environ;
static char here[TEXT_MAX] TPCK_LARGE; /* "NAME=VALUE\n" each */
static char then[TEXT_MAX] TPCK_LARGE;
static bool then_known, returned;
static struct tpck_record_device device_then;

static TPCK_AT_START bool is(const char *variable, const char *name)
{
	while (*name && *name == *variable)
		name++, variable++;
	return !*name && *variable == '=';
}

TPCK_AT_START bool tpck_place_tells(const char *variable)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (is(variable, names[i]))
			return true;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		if (is(variable, lists[i]))
			return true;
	return false;
}

TPCK_AT_START void tpck_place_note(char *const *environment)
{
	size_t used = 0;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (char *const *e = environment; e && *e; e++) {
			size_t length = strlen(*e);

			if (!is(*e, names[i]) || length > strlen(names[i]) + 1 + VALUE_MAX || strchr(*e, '\n'))
				continue;
			memcpy(here + used, *e, length);
			used += length;
			here[used++] = '\n';
			break;
		}
	here[used] = '\0';
}

/* The value behind a name in such a text, with its length; NULL: it is not there. */
static const char *find(const char *text, const char *name, size_t *length)
{
	for (const char *line = text; *line; line = strchr(line, '\n') + 1)
		if (is(line, name)) {
			line += strlen(name) + 1;
			*length = (size_t)(strchr(line, '\n') - line);
			return line;
		}
	return NULL;
}

/* ---- the record --------------------------------------------------------------------------------- */

void tpck_place_record(struct tpck_log *log)
{
	if (here[0])
		tpck_log_append(log, TPCK_RECORD_PLACE, 0, 0, 0, here, strlen(here) + 1);
}

void tpck_place_record_device(struct tpck_log *log, const struct tpck_device *device, int ordinal)
{
	struct tpck_record_device now = {0};

	if (ordinal >= 0 && device->describe && !device->describe(ordinal, &now.traits)) {
		now.ordinal = (uint32_t)ordinal;
		tpck_log_append(log, TPCK_RECORD_DEVICE, 0, 0, 0, &now, sizeof now);
	}
}

void tpck_place_learn(const struct tpck_record *record)
{
	const char *text = (const char *)(record + 1);

	if (record->type == TPCK_RECORD_PLACE && record->bytes > 1 && record->bytes <= sizeof then &&
	    !text[record->bytes - 1] && text[record->bytes - 2] == '\n' && strlen(text) + 1 == record->bytes) {
		memcpy(then, text, record->bytes);
		then_known = true;
	}
	if (record->type == TPCK_RECORD_DEVICE && record->bytes == sizeof device_then)
		memcpy(&device_then, record + 1, sizeof device_then);
}

/* ---- the device ----------------------------------------------------------------------------------- */

/* As the kernel module lists them; in a container, those that it was given. 0: it is not known. */
static unsigned count_devices(void)
{
	int folder = tpck_sys_openat(AT_FDCWD, "/proc/driver/nvidia/gpus", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buffer[4096];
	unsigned count = 0;
	ssize_t got;

	if (folder < 0)
		return 0;
	while ((got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen)
			count += ((struct dirent64 *)at)->d_name[0] != '.';
	tpck_sys_close(folder);
	return count;
}

/* Entry `number` of a list, or, without one, the number itself. False: the list ends before. */
static bool entry_of(const char *visible, unsigned number, char *entry, size_t size)
{
	size_t length;

	if (!visible) {
		snprintf(entry, size, "%u", number);
		return true;
	}
	for (; number; number--) {
		visible = strchr(visible, ',');
		if (!visible)
			return false;
		visible++;
	}
	length = strcspn(visible, ",");
	/* The driver's list ends at what is no device. */
	if (!length || *visible == '-' || length >= size)
		return false;
	memcpy(entry, visible, length);
	entry[length] = '\0';
	return true;
}

static unsigned count_entries(const char *visible)
{
	char entry[128];
	unsigned count = 0;

	while (count < DEVICES_MAX && entry_of(visible, count, entry, sizeof entry))
		count++;
	return count;
}

/* Which of `here` devices the rank is to have; -1: nobody knows. A program that takes the device of its number on its node does so
 * anywhere, and one that stays at its number may stay at its device. */
static long device_for(const struct tpck_place_device *from, long local, unsigned count)
{
	if (from->local >= 0 && local >= 0 && from->count && from->ordinal == (unsigned long)from->local % from->count)
		return local % (long)count;
	return from->local == local ? (long)from->ordinal : -1;
}

int tpck_place_devices(const struct tpck_place_device *from, long local, const char *visible, unsigned devices, char *list, size_t list_size,
		       char *why, size_t size)
{
	unsigned count = visible ? count_entries(visible) : devices, shown, next = 0;
	size_t used = 0;
	long device;

	*list = '\0';
	if (!count && !visible)
		return 0;
	device = count ? device_for(from, local, count) : 0;
	if (from->ordinal >= count || device >= (long)count) {
		snprintf(why, size, "the rank was on device %u of %u, and here it sees %u", from->ordinal, from->count, count);
		return -ENODEV;
	}
	if (device < 0) {
		snprintf(why, size, "the rank was on device %u of %u as rank %ld of its node; which one is its own as rank %ld of this one is not known",
			 from->ordinal, from->count, from->local, local);
		return -ENODEV;
	}
	shown = from->count < count ? from->count : count;
	if (shown == count && device == (long)from->ordinal)
		return 0;
	for (unsigned i = 0; i < shown; i++) {
		char entry[128] = "";

		if (i != from->ordinal && next == (unsigned)device)
			next++;
		entry_of(visible, i == from->ordinal ? (unsigned)device : next++, entry, sizeof entry);
		used += (size_t)snprintf(list + used, used < list_size ? list_size - used : 0, "%s%s", i ? "," : "", entry);
		if (used >= list_size) {
			*list = '\0';
			snprintf(why, size, "%s is too long", VISIBLE);
			return -ENOSPC;
		}
	}
	return 0;
}

/* ---- giving it back ------------------------------------------------------------------------------- */

/* Where it fits, where it is: main() has a pointer to the same texts. */
static int put(const char *name, const char *value, size_t length)
{
	char text[VALUE_MAX + 1];

	for (char **e = environ; e && *e; e++)
		if (is(*e, name) && strlen(*e) == strlen(name) + 1 + length) {
			memcpy(*e + strlen(name) + 1, value, length);
			return 0;
		}
	if (length > VALUE_MAX)
		return -ENOSPC;
	memcpy(text, value, length);
	text[length] = '\0';
	return setenv(name, text, 1) ? -errno : 0;
}

static long number_of(const char *text, const char *name)
{
	size_t length;
	const char *value = find(text, name, &length);

	return value && *value >= '0' && *value <= '9' ? strtol(value, NULL, 10) : -1;
}

static int put_all(void)
{
	int result = 0;

	for (size_t i = 0; i < sizeof names / sizeof *names && !result; i++) {
		size_t length;
		const char *value = find(then, names[i], &length);

		if (value)
			result = put(names[i], value, length);
		else
			unsetenv(names[i]);
	}
	return result;
}

int tpck_place_return(char *why, size_t size)
{
	struct tpck_place_device from = {-1, device_then.ordinal, device_then.traits.count};
	const char *visible = getenv(VISIBLE);
	bool same = strcmp(then, here) == 0;
	char list[LIST_MAX] = "";
	unsigned devices;
	long local = -1;
	int result = 0;

	/* Where it is the same rank of its node it may still see more devices than it did, or fewer. */
	if (!then_known || (same && !visible))
		return 0;
	devices = count_devices();
	for (size_t i = 0; !same && i < LOCAL_NAMES && (from.local < 0 || local < 0); i++) {
		from.local = number_of(then, names[i]);
		local = number_of(here, names[i]);
	}
	if (from.count)
		result = tpck_place_devices(&from, local, visible, devices, list, sizeof list, why, size);
	if (!result && !same)
		result = put_all();
	if (!result && list[0] && setenv(VISIBLE, list, 1))
		result = -errno;
	if (result) {
		if (!why[0])
			snprintf(why, size, "the environment of its first start cannot be given back: %s", strerror(-result));
		return result;
	}
	returned = !same || list[0];
	if (!same && !list[0] && from.count > 1 && !visible && !devices)
		tpck_log_warn("which devices there are is not known without " VISIBLE ": device %u is used as in the first run", from.ordinal);
	if (!same)
		tpck_log_info("rank %ld of this node goes on as it began, as rank %ld of its node%s%s", local, from.local,
			      list[0] ? ", with " VISIBLE "=" : "", list);
	return 0;
}

int tpck_place_compare(const struct tpck_device *device, int ordinal, char *why, size_t size)
{
	const struct tpck_device_traits *was = &device_then.traits;
	struct tpck_device_traits is_now;
	uint64_t apart;

	if (!was->count || ordinal < 0 || !device->describe || device->describe(ordinal, &is_now))
		return 0;
	/* The program may have asked MPI, or counted names of hosts: then it computes with another number than in the first run, and what it
	 * took is not the device that was put at the old number for it. */
	if (returned && (uint32_t)ordinal != device_then.ordinal) {
		snprintf(why, size, "the program is on device %d, and was on device %u: not by its environment alone it knows that it is elsewhere on its node",
			 ordinal, device_then.ordinal);
		return -EXDEV;
	}
	apart = was->memory > is_now.memory ? was->memory - is_now.memory : is_now.memory - was->memory;
	/* Drivers keep more or less of the same device's memory to themselves. */
	if (was->capability == is_now.capability && was->multiprocessors == is_now.multiprocessors && apart <= was->memory / 64)
		return 0;
	snprintf(why, size, "the device was of compute capability %u.%u with %u multiprocessors and %llu MiB, and this one is of %u.%u with %u and %llu MiB",
		 was->capability / 10, was->capability % 10, was->multiprocessors, (unsigned long long)was->memory >> 20, is_now.capability / 10,
		 is_now.capability % 10, is_now.multiprocessors, (unsigned long long)is_now.memory >> 20);
	return -EXDEV;
}
