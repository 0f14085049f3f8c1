/* SPDX-License-Identifier: Apache-2.0 */
/* The vendor's fat binaries and cubins as images: what kernels there are, and how their parameters lie. They have no code, but for PTX. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "driver/sim.h"
#include "image.h"
#include "ptx_text.h"

#define FATBIN_MAGIC 0xba55ed50u
#define ENTRY_ELF 2
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u
#define LOOK 4096 /* as far as comments may go before a PTX text says what it is */

/* Of a .nv.info section: one byte each of format and attribute, two of value or size. */
#define FORMAT_SIZED 4
#define ATTRIBUTE_PARAM 0x17    /* index, ordinal, offset, size in the upper 14 bits of a word */
#define ATTRIBUTE_PARAM_V2 0x45 /* index, ordinal, offset, size */

struct fatbin_header {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes;
};

struct fatbin_entry {
	uint16_t kind, attribute;
	uint32_t header_bytes;
	uint64_t bytes;
	uint32_t compressed_bytes, reserved;
	uint16_t minor, major;
	uint32_t arch, name, name_bytes;
	uint64_t flags, zero, plain_bytes;
};

/* The device is an sm_90; its binaries are those of the same major version that are no younger. */
static const struct fatbin_entry *best_entry(const struct fatbin_header *h)
{
	const char *at = (const char *)h + h->header_bytes, *end = at + h->bytes;
	const struct fatbin_entry *best = NULL;

	while (at + sizeof(struct fatbin_entry) <= end) {
		const struct fatbin_entry *e = (const void *)at;

		if (e->kind == ENTRY_ELF && e->arch / 10 == 9 && e->arch <= 90 && (!best || e->arch > best->arch))
			best = e;
		at += e->header_bytes + e->bytes;
	}
	return best;
}

static size_t lz4_length(const uint8_t **in, const uint8_t *end, size_t n)
{
	uint8_t b = 255;

	if (n == 15)
		while (b == 255 && *in < end)
			n += b = *(*in)++;
	return n;
}

/* The block format of LZ4. */
static size_t lz4(char *out, size_t room, const uint8_t *in, size_t n)
{
	const uint8_t *end = in + n;
	size_t used = 0;

	while (in < end) {
		uint8_t token = *in++;
		size_t literals = lz4_length(&in, end, token >> 4);

		if (literals > (size_t)(end - in) || literals > room - used)
			return 0;
		memcpy(out + used, in, literals);
		used += literals;
		in += literals;
		if (end - in < 2)
			return used;
		size_t back = (size_t)(in[0] | in[1] << 8), match;
		in += 2;
		match = lz4_length(&in, end, token & 15) + 4;
		if (!back || back > used || match > room - used)
			return 0;
		for (size_t i = 0; i < match; i++, used++)
			out[used] = out[used - back];
	}
	return used;
}

/* The package manager's own libzstd; no headers and no link for one function. */
static size_t zstd(char *out, size_t room, const void *in, size_t n)
{
	static size_t (*decompress)(void *, size_t, const void *, size_t);

	if (!decompress) {
		void *h = dlopen("libzstd.so.1", RTLD_NOW);

		decompress = h ? (size_t (*)(void *, size_t, const void *, size_t))dlsym(h, "ZSTD_decompress") : NULL;
		if (!decompress) {
			fprintf(stderr, "simgpu: the program's kernels are compressed and there is no libzstd.so.1\n");
			return 0;
		}
	}
	return decompress(out, room, in, n);
}

static char *unpack(const struct fatbin_entry *e, size_t *bytes)
{
	const char *payload = (const char *)e + e->header_bytes;
	size_t want = e->flags & (FLAG_LZ4 | FLAG_ZSTD) ? e->plain_bytes : e->bytes;
	char *out = malloc(want + 1);

	if (!out)
		return NULL;
	if (e->flags & FLAG_ZSTD)
		*bytes = zstd(out, want, payload, e->compressed_bytes);
	else if (e->flags & FLAG_LZ4)
		*bytes = lz4(out, want, (const uint8_t *)payload, e->compressed_bytes);
	else
		memcpy(out, payload, *bytes = want);
	if (*bytes == want)
		return out;
	free(out);
	return NULL;
}

struct elf {
	const char *base;
	size_t bytes;
	const Elf64_Shdr *section;
	unsigned n;
	const char *names;
};

static bool elf_open(struct elf *e, const char *base, size_t bytes)
{
	const Elf64_Ehdr *h = (const void *)base;

	if (bytes < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_machine != SIM_EM_CUDA)
		return false;
	if (h->e_shoff > bytes || (bytes - h->e_shoff) / sizeof(Elf64_Shdr) < h->e_shnum || h->e_shstrndx >= h->e_shnum)
		return false;
	*e = (struct elf){ .base = base, .bytes = bytes, .section = (const void *)(base + h->e_shoff), .n = h->e_shnum };
	for (unsigned i = 0; i < e->n; i++)
		if (e->section[i].sh_type != SHT_NOBITS &&
		    (e->section[i].sh_offset > bytes || e->section[i].sh_size > bytes - e->section[i].sh_offset))
			return false;
	e->names = base + e->section[h->e_shstrndx].sh_offset;
	return true;
}

static const char *kernel_name(const struct elf *e, unsigned i)
{
	static const char prefix[] = ".nv.info.";
	const char *name = e->names + e->section[i].sh_name;

	return strncmp(name, prefix, sizeof prefix - 1) ? NULL : name + sizeof prefix - 1;
}

/* Parameters by ordinal. Returns how many, at most `room`. */
static uint32_t parameters(const struct elf *e, const Elf64_Shdr *s, struct sim_image_param *out, uint32_t room)
{
	const char *at = e->base + s->sh_offset, *end = at + s->sh_size;
	uint32_t n = 0;

	while (at + 4 <= end) {
		uint8_t format = (uint8_t)at[0], attribute = (uint8_t)at[1];
		uint16_t size;

		memcpy(&size, at + 2, 2);
		at += 4;
		if (format != FORMAT_SIZED)
			continue;
		if (end - at < size)
			break;
		if ((attribute == ATTRIBUTE_PARAM || attribute == ATTRIBUTE_PARAM_V2) && size >= 12) {
			uint16_t ordinal, offset, small;
			uint32_t word;

			memcpy(&ordinal, at + 4, 2);
			memcpy(&offset, at + 6, 2);
			memcpy(&word, at + 8, 4);
			memcpy(&small, at + 8, 2);
			if (ordinal < room) {
				out[ordinal] = (struct sim_image_param){ offset, attribute == ATTRIBUTE_PARAM ? word >> 18 : small };
				n = ordinal + 1u > n ? ordinal + 1u : n;
			}
		}
		at += size;
	}
	return n;
}

#define PARAMS_MAX 256

/* Two passes over the sections: sizes, then contents. */
static char *describe(const struct elf *e)
{
	struct sim_image_param p[PARAMS_MAX];
	uint64_t kernels = 0, params = 0, strings = 0;

	for (unsigned i = 0; i < e->n; i++)
		if (kernel_name(e, i)) {
			kernels++;
			params += parameters(e, &e->section[i], p, PARAMS_MAX);
			strings += strlen(kernel_name(e, i)) + 1;
		}
	struct sim_image_header h = { .version = SIMGPU_IMAGE_VERSION, .n_kernels = (uint32_t)kernels, .n_params = (uint32_t)params };
	memcpy(h.magic, SIMGPU_IMAGE_MAGIC, sizeof h.magic);
	h.kernels = sizeof h;
	h.params = h.kernels + kernels * sizeof(struct sim_image_kernel);
	h.variables = h.params + params * sizeof(struct sim_image_param);
	h.strings = h.variables;
	h.object = h.total_bytes = h.strings + strings;
	char *image = calloc(1, h.total_bytes + 1);
	if (!image)
		return NULL;
	memcpy(image, &h, sizeof h);
	struct sim_image_kernel *k = (void *)(image + h.kernels);
	struct sim_image_param *at = (void *)(image + h.params);
	char *text = image + h.strings;
	for (unsigned i = 0; i < e->n; i++) {
		if (!kernel_name(e, i))
			continue;
		k->name = (uint32_t)(text - (image + h.strings));
		k->first_param = (uint32_t)(at - (struct sim_image_param *)(void *)(image + h.params));
		memset(p, 0, sizeof p);
		k->n_params = parameters(e, &e->section[i], p, PARAMS_MAX);
		memcpy(at, p, k->n_params * sizeof *p);
		for (uint32_t j = 0; j < k->n_params; j++)
			if (p[j].offset + p[j].size > k->param_bytes)
				k->param_bytes = p[j].offset + p[j].size;
		at += k->n_params;
		text = stpcpy(text, kernel_name(e, i)) + 1;
		k++;
	}
	return image;
}

/* The text in a cubin that the stand-in for ptxas made, or NULL. */
static const char *packed_ptx(const struct elf *e, size_t *bytes)
{
	for (unsigned i = 0; i < e->n; i++)
		if (!strcmp(e->names + e->section[i].sh_name, SIMGPU_PTX_SECTION)) {
			*bytes = e->section[i].sh_size;
			return e->base + e->section[i].sh_offset;
		}
	return NULL;
}

static size_t elf_bytes(const Elf64_Ehdr *h)
{
	const Elf64_Shdr *s = (const void *)((const char *)h + h->e_shoff);
	size_t end = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;

	for (unsigned i = 0; i < h->e_shnum; i++)
		if (s[i].sh_type != SHT_NOBITS && s[i].sh_offset + s[i].sh_size > end)
			end = s[i].sh_offset + s[i].sh_size;
	return end;
}

CUresult sim_cubin_image(const void *data, char **image)
{
	const struct fatbin_header *h = data;
	char *unpacked = NULL;
	const char *base = data;
	const char *text;
	size_t bytes = 0;
	struct elf e;

	*image = NULL;
	if (h->magic == FATBIN_MAGIC) {
		const struct fatbin_entry *entry = best_entry(h);

		if (!entry)
			return CUDA_ERROR_NO_BINARY_FOR_GPU;
		base = unpacked = unpack(entry, &bytes);
	} else if (!memcmp(data, ELFMAG, SELFMAG)) {
		bytes = elf_bytes(data);
	} else if (sim_ptx_looks(data, strnlen(data, LOOK))) {
		return sim_ptx_image(data, strlen(data), image);
	} else {
		return CUDA_ERROR_INVALID_IMAGE;
	}
	if (base && elf_open(&e, base, bytes)) {
		text = packed_ptx(&e, &bytes);
		if (text)
			return sim_ptx_image(text, bytes, image);
		*image = describe(&e);
	}
	free(unpacked);
	return *image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
