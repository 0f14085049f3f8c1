/* SPDX-License-Identifier: Apache-2.0 */
/** What a kernel's name says: families of optimizer kernels by parts of their names, and words of other names. */
#include "config.h"

#include "runtime/infer/names.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* Parts of names of kernels that apply a functor to lists of tensors, and the sizes of all their parameters where
 * they were read out of shipped binaries (torch 2.15 cu132, transformer-engine 2.20, DeepSpeed 0.19). A row with a
 * NULL family is not an optimizer. The first row whose part is found decides. */
static const struct list_kernel {
	const char *part;
	const char *family;
	uint32_t sizes[4];
	bool no_update; /* of an optimizer, but not the launch that writes the parameters */
} list_kernels[] = {
	{"non_finite_check", NULL, {0}, false},
	{"LpNorm", NULL, {0}, false},
	{"L2Norm", NULL, {0}, false},
	{"MaxNorm", NULL, {0}, false},
	{"ZeroFunctor", NULL, {0}, false},
	{"CopyFunctor", NULL, {0}, false},
	{"4CopyI", NULL, {0}, false},
	{"::Copy<", NULL, {0}, false},
	{"ScaleFunctor", NULL, {0}, false},
	{"ScalePtrFunctor", NULL, {0}, false},
	{"AxpbyFunctor", NULL, {0}, false},
	{"BinaryOpScalarTensor", NULL, {0}, false},
	{"minimum", NULL, {0}, false},
	{"maximum", NULL, {0}, false},
	{"FusedAdam", "torch fused adam", {25624, 25288}, false},
	{"FusedAdagrad", "torch fused adagrad", {26960}, false},
	{"FusedSgd", "torch fused sgd", {24272}, false},
	{"AdamCapturable", "multi-tensor adam", {3120}, false},
	{"AdamFunctor", "multi-tensor adam", {3100, 3820, 2904}, false},
	{"SGDFunctor", "multi-tensor sgd", {3188, 3092}, false},
	{"LionFunctor", "multi-tensor lion", {2988}, false},
	{"Adagrad", "multi-tensor adagrad", {0}, false},
	{"NovoGrad", "multi-tensor novograd", {0}, false},
	{"LAMB", "multi-tensor lamb", {0}, false},
	{"Lamb", "multi-tensor lamb", {0}, false},
	{"PointwiseOp", "torch foreach", {24208, 25538}, false},
	{"TernaryOp", "torch foreach", {24208}, true},
	{"BinaryOpListAlpha", "torch foreach", {24208}, false},
	{"BinaryOpScalarList", "torch foreach", {26882}, true},
	{"BinaryOpScalar", "torch foreach", {25776}, true},
};

/* Kernels with names of their own, one launch a tensor, and the sizes of all their parameters (bitsandbytes 0.50). */
static const struct tensor_kernel {
	const char *part;
	const char *family;
	uint32_t size;
} tensor_kernels[] = {
	{"kOptimizer32bit2State", "bitsandbytes", 92},
	{"kOptimizer32bit1State", "bitsandbytes", 76},
	{"kOptimizerStatic8bit2StateBlockwise", "bitsandbytes 8 bit", 112},
	{"kOptimizerStatic8bit1StateBlockwise", "bitsandbytes 8 bit", 80},
	{"lamb_cuda_kernel_part1", "deepspeed lamb", 96},
	{"lamb_cuda_kernel_part2", "deepspeed lamb", 24},
	{"lamb_cuda_kernel_part3", "deepspeed lamb", 112},
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
			kernel.layout_known = kernel.family && size_among(param_bytes, list_kernels[i].sizes, 4);
			kernel.update = kernel.family && !list_kernels[i].no_update;
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
