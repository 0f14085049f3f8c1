/* SPDX-License-Identifier: Apache-2.0 */
/** What a kernel's name says: families of optimizer kernels by parts of their names, and words of other names. */
#include "config.h"

#include "runtime/infer/kernel_names.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

static const struct list_kernel {
	const char *part;
	const char *family; /* NULL: of no optimizer */
	uint32_t sizes[3];
	bool updates;
} list_kernels[] = {
#define UPDATES true
#define PREPARES false
#define TPCK_NEUTRAL_KERNEL(part) {part, NULL, {0}, false},
#define TPCK_LIST_KERNEL(part, family, one, two, three, updates) {part, family, {one, two, three}, updates},
#include "runtime/infer/optimizers.def"
};

static const struct tensor_kernel {
	const char *part;
	const char *family;
	uint32_t size;
} tensor_kernels[] = {
#define TPCK_TENSOR_KERNEL(part, family, size) {part, family, size},
#include "runtime/infer/optimizers.def"
};

static const char *const optimizer_words[] = {
	"adam",    "adamw",    "adamax",   "adagrad",  "adadelta", "adafactor", "nadam", "radam",     "sgd",   "momentum",
	"rmsprop", "rprop",    "lamb",     "lars",     "lion",     "novograd",  "sophia", "ademamix", "optim", "optimizer",
	"nesterov",
};

/* A name with one of these belongs to a pass, or prepares gradients, whatever else it says. */
static const char *const other_words[] = {
	"forward", "backward", "fwd", "bwd", "backprop", "grad",   "norm",
	"clip",    "scale",    "unscale", "finite", "precondition", "accumulate", "reduce",
};

static const char *const pointwise_parts[] = {
	"addcdiv", "addcmul", "lerp", "sqrt", "MulScalar", "AddFunctor", "Functor_add", "OnSelf_add", "OnOther_add", "MulFunctor",
	"DivFunctor", "SubFunctor", "add_kernel", "mul_kernel", "div_kernel",
};

static bool among(const char *word, size_t n, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0)
			return true;
	return false;
}

/* Calls for each lower-case word of an identifier: between underscores, at a change to upper case, without digits. */
struct words {
	bool optimizer, other;
};

static void judge_word(const char *lower, size_t n, struct words *found)
{
	if (among(lower, n, optimizer_words, sizeof optimizer_words / sizeof *optimizer_words))
		found->optimizer = true;
	if (among(lower, n, other_words, sizeof other_words / sizeof *other_words))
		found->other = true;
}

static void judge_identifier(const char *text, size_t n, struct words *found)
{
	char word[32];
	size_t have = 0;
	for (size_t i = 0; i <= n; i++) {
		unsigned char c = i < n ? (unsigned char)text[i] : '_';
		bool letter = isalpha(c) != 0;
		bool starts = letter && isupper(c) && i > 0 && (islower((unsigned char)text[i - 1]) ||
													   (i + 1 < n && islower((unsigned char)text[i + 1])));
		if (have > 0 && (!letter || starts)) {
			judge_word(word, have, found);
			have = 0;
		}
		if (letter && have < sizeof word)
			word[have++] = (char)tolower(c);
	}
}

/* The identifiers of a mangled name up to the first template argument or parameter: _Z3fooPf, _ZN2ns3fooILi4EEEvPf. */
static void judge_mangled(const char *name, struct words *found)
{
	const char *p = name + 2;
	if (*p == 'N')
		p++;
	while (*p == 'L' || *p == 'K')
		p++;
	while (isdigit((unsigned char)*p)) {
		size_t n = 0;
		while (isdigit((unsigned char)*p))
			n = n * 10 + (size_t)(*p++ - '0');
		if (strnlen(p, n) < n)
			return;
		judge_identifier(p, n, found);
		p += n;
	}
}

/* "void ns::foo<4>(float*)": everything before the template arguments or parameters. */
static void judge_plain(const char *name, struct words *found)
{
	static const char anonymous[] = "(anonymous namespace)";
	const char *end = name;
	while (*end && *end != '<') {
		if (*end == '(') {
			if (strncmp(end, anonymous, sizeof anonymous - 1) != 0)
				break;
			end += sizeof anonymous - 1;
			continue;
		}
		end++;
	}
	judge_identifier(name, (size_t)(end - name), found);
}

static bool size_among(uint32_t size, const uint32_t *sizes, size_t count)
{
	for (size_t i = 0; size && i < count; i++)
		if (sizes[i] == size)
			return true;
	return false;
}

static struct tpck_named_kernel name_list_kernel(const char *name, uint32_t param_bytes)
{
	struct tpck_named_kernel kernel = {.role = TPCK_ROLE_NEUTRAL, .list = true};
	kernel.checks = strstr(name, "non_finite") || strstr(name, "ScaleFunctor") || strstr(name, "ScalePtrFunctor");
	kernel.fill = strstr(name, "ZeroFunctor") != NULL;
	for (size_t i = 0; i < sizeof list_kernels / sizeof *list_kernels; i++)
		if (strstr(name, list_kernels[i].part)) {
			kernel.family = list_kernels[i].family;
			kernel.role = kernel.family ? TPCK_ROLE_OPTIMIZER : TPCK_ROLE_NEUTRAL;
			kernel.layout_known = kernel.family && size_among(param_bytes, list_kernels[i].sizes, 3);
			kernel.update = kernel.family && list_kernels[i].updates;
			kernel.common = kernel.family && strcmp(kernel.family, "torch foreach") == 0;
			break;
		}
	return kernel;
}

static struct tpck_named_kernel name_elementwise(const char *name)
{
	struct tpck_named_kernel kernel = {.role = TPCK_ROLE_NEUTRAL};
	if (strstr(name, "addcdiv") || strstr(name, "lerp_scalar_kernel")) {
		kernel.role = TPCK_ROLE_OPTIMIZER;
		kernel.family = "torch for-loop";
		kernel.update = strstr(name, "addcdiv") != NULL;
		kernel.common = true;
		return kernel;
	}
	kernel.fill = strstr(name, "FillFunctor") != NULL;
	kernel.addition = strstr(name, "unctor_add") || strstr(name, "OnSelf_add") || strstr(name, "OnOther_add") ||
			  strstr(name, "AddFunctor") || strstr(name, "add_kernel") || strstr(name, "addcmul");
	for (size_t i = 0; i < sizeof pointwise_parts / sizeof *pointwise_parts; i++)
		if (strstr(name, pointwise_parts[i]))
			kernel.role = TPCK_ROLE_POINTWISE;
	return kernel;
}

struct tpck_named_kernel tpck_name_kernel(const char *name, uint32_t param_bytes)
{
	struct tpck_named_kernel kernel = {.role = TPCK_ROLE_UNKNOWN};
	struct words found = {false, false};
	if (!name || !*name)
		return kernel;
	if (strstr(name, "multi_tensor_apply_kernel"))
		return name_list_kernel(name, param_bytes);
	if (strstr(name, "elementwise_kernel"))
		return name_elementwise(name);
	if (strncmp(name, "_Z", 2) == 0)
		judge_mangled(name, &found);
	else
		judge_plain(name, &found);
	kernel.role = TPCK_ROLE_OTHER;
	kernel.checks = strstr(name, "finite") != NULL;
	kernel.backward = strstr(name, "backward") || strstr(name, "bwd") || strstr(name, "dgrad") || strstr(name, "wgrad");
	kernel.gradient = kernel.backward || strstr(name, "grad");
	kernel.preparing = found.other;
	if (found.optimizer && strstr(name, "Precondition")) /* bitsandbytes: between the launches that update */
		kernel.role = TPCK_ROLE_NEUTRAL;
	if (found.optimizer && !found.other) {
		kernel.role = TPCK_ROLE_OPTIMIZER;
		kernel.family = "by its words";
		kernel.update = true;
		for (size_t i = 0; i < sizeof tensor_kernels / sizeof *tensor_kernels; i++)
			if (strstr(name, tensor_kernels[i].part)) {
				kernel.family = tensor_kernels[i].family;
				kernel.layout_known = param_bytes == tensor_kernels[i].size;
			}
	}
	return kernel;
}
