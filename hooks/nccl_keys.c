/* SPDX-License-Identifier: Apache-2.0 */
/* Whether programs are given keys in place of NCCL's communicators: only where every function that could be told one is hooked. */
#include "config.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "hooks/nccl.h"
#include "runtime/base/log.h"
#include "shim/doors.h"
#include "shim/driver.h"

/* What NCCL exports up to 2.30 beside what is hooked: none of it takes a communicator. */
static const char harmless[] =
	"GetVersion\0GetErrorString\0ResetDebugInit\0ResetDebugInitInternal\0"
	"GetLsaDevicePointer\0GetLsaMultimemDevicePointer\0GetMultimemDevicePointer\0GetPeerDevicePointer\0"
	"GinInboxA2ACreateRequirement\0GinOutboxCreateRequirement\0LLA2ACalcSlots\0LLA2ACreateRequirement\0LsaBarrierCreateRequirement\0"
	"ParamBind\0ParamDumpAll\0ParamGet\0ParamGetAllParameterKeys\0ParamGetI16\0ParamGetI32\0ParamGetI64\0ParamGetI8\0"
	"ParamGetParameter\0ParamGetStr\0ParamGetU16\0ParamGetU32\0ParamGetU64\0ParamGetU8\0";

/* A function that may be told a communicator, and by name is none of those that are known. */
static bool is_strange(const char *symbol)
{
	const char *name = symbol + (symbol[0] == 'p');

	/* "8ncclComm" is the type, in the names that C++ makes. */
	if (strncmp(name, "nccl", 4) != 0)
		return strncmp(symbol, "_Z", 2) == 0 && strstr(symbol, "8ncclComm");
	if (tpck_nccl_is_hooked(name))
		return false;
	for (const char *known = harmless; *known; known += strlen(known) + 1)
		if (strcmp(known, name + 4) == 0)
			return false;
	return true;
}

static const void *dynamic_pointer(const struct link_map *map, const ElfW(Dyn) *entry)
{
	/* The loader has added where the object lies, but not in a section that it must not write to. */
	ElfW(Addr) at = entry->d_un.d_ptr;

	return (const void *)(at < map->l_addr ? at + map->l_addr : at);
}

/* How many symbols a table of this kind is for: it leaves out the first ones, which are not defined there. */
static uint32_t symbols_of(const uint32_t *hash)
{
	uint32_t buckets = hash[0], first = hash[1], bloom = hash[2], last = 0;
	const uint32_t *bucket = hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;

	for (uint32_t i = 0; i < buckets; i++)
		if (bucket[i] > last)
			last = bucket[i];
	if (last < first)
		return 0;
	while (!(chain[last - first] & 1))
		last++;
	return last + 1;
}

/* The name of a strange function that the object exports, "" where its symbols cannot be read, or NULL. */
static const char *strange_symbol(const struct link_map *map)
{
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	const uint32_t *hash = NULL;

	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_SYMTAB)
			symbols = dynamic_pointer(map, entry);
		else if (entry->d_tag == DT_STRTAB)
			names = dynamic_pointer(map, entry);
		else if (entry->d_tag == DT_GNU_HASH)
			hash = dynamic_pointer(map, entry);
	if (!symbols || !names || !hash)
		return "";
	for (uint32_t i = 0, count = symbols_of(hash); i < count; i++)
		if (symbols[i].st_shndx != SHN_UNDEF && is_strange(names + symbols[i].st_name))
			return names + symbols[i].st_name;
	return NULL;
}

static bool is_library(const struct link_map *map)
{
	const char *slash = strrchr(map->l_name, '/');

	return strncmp(slash ? slash + 1 : map->l_name, "libnccl", 7) == 0;
}

/* A tool's functions stand before NCCL's. NCCL that is a part of something else may be called past the hooks. */
static bool decide(void)
{
	enum { OBJECTS = 8 };
	struct link_map *object[OBJECTS], *map;
	unsigned objects = 0, libraries = 0, known;
	const char *strange;
	Dl_info info;
	void *real;

	/* Who looks in another order, or finds another's before, may come past a hook with a key. */
	if (tpck_doors_deepbound() || !tpck_nccl_is_first()) {
		tpck_log_info("not every call of NCCL's is seen here: communicators are NCCL's own handles");
		return false;
	}
	for (unsigned i = 0; i < 2 * TPCK_NCCL_FUNCTIONS; i++) {
		map = NULL;
		real = tpck_nccl_would_be(i / 2, i % 2);
		if (!real)
			continue;
		if (!dladdr1(real, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
			return false;
		for (known = 0; known < objects && object[known] != map;)
			known++;
		if (known < objects)
			continue;
		if (objects == OBJECTS)
			return false;
		object[objects++] = map;
		libraries += is_library(map);
		strange = strange_symbol(map);
		if (strange) {
			tpck_log_info("%s has %s, which the library does not know: communicators are NCCL's own handles", map->l_name,
				      strange[0] ? strange : "symbols that cannot be read");
			return false;
		}
	}
	/* With two of them a program that looks functions up as it needs them would come to the other's with a key. */
	if (libraries != 1)
		return false;
	for (unsigned i = 0; i < 2 * TPCK_NCCL_FUNCTIONS; i++)
		(void)tpck_nccl_real(i / 2, i % 2);
	return true;
}

bool tpck_nccl_keys(void)
{
	enum { UNDECIDED, NO, YES };
	static _Atomic int decided;
	int now = atomic_load(&decided), saved = errno;

	if (now == UNDECIDED) {
		now = decide() ? YES : NO;
		/* An NCCL that is older lacks some: nothing is wrong. */
		(void)dlerror();
		/* Of two threads one has decided for both. */
		if (!atomic_compare_exchange_strong(&decided, &(int){UNDECIDED}, now))
			now = atomic_load(&decided);
		errno = saved;
	}
	return now == YES;
}
