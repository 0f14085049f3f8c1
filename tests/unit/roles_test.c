/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of tensors: layouts of optimizer kernels by name and parameters, and what launches say. Names and parameters
 * were read out of shipped binaries (torch 2.15 cu132, DeepSpeed 0.19, bitsandbytes 0.50). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/infer/roles.h"

static int checks, failed;

#define ok(good, ...)                                          \
	do {                                                       \
		bool good_ = (good);                                   \
		checks++;                                              \
		failed += !good_;                                      \
		printf("%sok %d - ", good_ ? "" : "not ", checks);     \
		printf(__VA_ARGS__);                                   \
		putchar('\n');                                         \
	} while (0)

#define NATIVE "_ZN2at6native52_GLOBAL__N__1f580294_19_fused_adamw_impl_cu_8b44fa2325multi_tensor_apply_kernelINS1_"
#define SOME "_ZN2at6native55_GLOBAL__N__f86471ef_22_ForeachBinaryOpList_cu_a911ec4325multi_tensor_apply_kernelINS1_"
#define ADAM NATIVE "32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbS9_S9_EEEvT_T0_DpT1_"
#define LERP SOME "18TensorListMetadataILi2EEENS1_22TernaryOpScalarFunctorIfLi2ELi2ELi0EEEJNS0_11LerpFunctorIfEEfEEEvT_T0_DpT1_"
#define ADDCMUL SOME "18TensorListMetadataILi3EEENS1_24PointwiseOpScalarFunctorIfLi3ELi3ELi0EEEJSt10multipliesIfEfEEEvT_T0_DpT1_"
#define ADDCDIV SOME "28TensorListScalarListMetadataIfLi3EEENS1_28PointwiseOpScalarListFunctorIfLi3ELi3ELi0EEEJSt7dividesIfEEEEvT_T0_DpT1_"
#define ADD SOME "18TensorListMetadataILi2EEENS1_24BinaryOpListAlphaFunctorIfLi2ELi2ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_"
#define SUM SOME "18TensorListMetadataILi3EEENS1_24BinaryOpListAlphaFunctorIfLi3ELi2ELi2EEEJSt4plusIfEfEEEvT_T0_DpT1_"
#define SCALE SOME "18TensorListMetadataILi1EEENS1_21BinaryOpScalarFunctorIfLi1ELi1ELi0EEEJSt10multipliesIfEfEEEvT_T0_DpT1_"
#define SQRT SOME "18TensorListMetadataILi2EEENS1_14UnaryOpFunctorIfLi2ELi1ELi1EEEJNS0_4SqrtIfEEEEEvT_T0_DpT1_"

/* ---- layouts ------------------------------------------------------------------------------------------------- */

static const struct known {
	const char *name;
	const char *parameters; /* offset:size ... as the function describes them */
	const char *roles;      /* of the lists; "" where it is an operation */
	enum tpck_layout_kind kind;
	uint32_t room;          /* 0: one tensor a launch */
	const char *element;    /* of the first and the last list */
} known[] = {
	{ADAM, "0:25544 25544:1 25552:8 25560:8 25568:8 25576:8 25584:8 25592:8 25600:1 25608:8 25616:8", "pgmv", TPCK_LAYOUT_STEP, 252,
	 "f4 f4"},
	/* the same as a library for CUDA before 12.1 has it */
	{ADAM, "0:3336 3336:1 3344:8 3352:8 3360:8 3368:8 3376:8 3384:8 3392:1 3400:8 3408:8", "pgmv", TPCK_LAYOUT_STEP, 36, "f4 f4"},
	{NATIVE "32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIN3c108BFloat16ELi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbSB_SB_EEEvT_T0_DpT1_",
	 "0:25544 25544:1 25552:8 25560:8 25568:8 25576:8 25584:8 25592:8 25600:1 25608:8 25616:8", "pgmv", TPCK_LAYOUT_STEP, 252,
	 "b2 b2"},
	{NATIVE "32FusedOptimizerTensorListMetadataILi4EEENS1_22FusedAdamMathFunctorMPIfffN3c108BFloat16ES7_fLi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbSB_SB_EEEvT_T0_DpT1_",
	 "0:25544 25544:1 25552:8 25560:8 25568:8 25576:8 25584:8 25592:8 25600:1 25608:8 25616:8", "pgmv", TPCK_LAYOUT_STEP, 252,
	 "f4 b2"},
	{NATIVE "32FusedOptimizerTensorListMetadataILi5EEENS1_20FusedAdamMathFunctorIfLi5ELNS0_9ADAM_MODEE0ELb1EEEJPKfdddddbSB_SB_EEEvT_T0_DpT1_",
	 "0:25208 25208:1 25216:8 25224:8 25232:8 25240:8 25248:8 25256:8 25264:1 25272:8 25280:8", "pgmvx", TPCK_LAYOUT_STEP, 210,
	 "f4 f4"},
	{NATIVE "32FusedOptimizerTensorListMetadataILi5EEENS1_22FusedAdamMathFunctorMPIfffN3c108BFloat16ES7_S7_Li5ELNS0_9ADAM_MODEE1ELb1EEEJPKfdddddbSB_SB_EEEvT_T0_DpT1_",
	 "0:25208 25208:1 25216:8 25224:8 25232:8 25240:8 25248:8 25256:8 25264:1 25272:8 25280:8", "pgmvx", TPCK_LAYOUT_STEP, 210,
	 "f4 b2"},
	{"_ZN2at6native50_GLOBAL__N__169a4528_17_FusedSgdKernel_cu_a550329a25multi_tensor_apply_kernelINS1_18TensorListMetadataILi3EEENS1_19FusedSgdMathFunctorIfLi3EEEJddPfddbbbS7_S7_EEEvT_T0_DpT1_",
	 "0:24200 24200:1 24208:8 24216:8 24224:8 24232:8 24240:8 24248:1 24249:1 24250:1 24256:8 24264:8", "pgm", TPCK_LAYOUT_STEP, 336,
	 "f4 f4"},
	{LERP, "0:24200 24200:1 24201:1 24204:4", "", TPCK_LAYOUT_LERP, 448, "f4 f4"},
	{ADDCMUL, "0:24200 24200:1 24201:1 24204:4", "", TPCK_LAYOUT_ADDCMUL, 336, "f4 f4"},
	{ADDCDIV, "0:25536 25536:1 25537:1", "", TPCK_LAYOUT_ADDCDIV, 336, "f4 f4"},
	{ADD, "0:24200 24200:1 24201:1 24204:4", "", TPCK_LAYOUT_ADD, 448, "f4 f4"},
	{SUM, "0:24200 24200:1 24201:1 24204:4", "", TPCK_LAYOUT_SUM, 336, "f4 f4"},
	{SCALE, "0:25768 25768:1 25769:1 25772:4", "", TPCK_LAYOUT_SCALE, 770, "f4 f4"},
	{SQRT, "0:24200 24200:1 24201:1", "", TPCK_LAYOUT_WRITE, 448, "f4 f4"},
	{"_Z25multi_tensor_apply_kernelI18TensorListMetadataILi4EE11AdamFunctorIfiEJffffff10adamMode_tfEEvlPViT_T0_DpT1_",
	 "0:8 8:8 16:3048 3064:1 3068:4 3072:4 3076:4 3080:4 3084:4 3088:4 3092:4 3096:4", "gpmv", TPCK_LAYOUT_STEP, 36, "f4 f4"},
	{"_Z25multi_tensor_apply_kernelI18TensorListMetadataILi4ELb0EEN18transformer_engine17multi_tensor_adam11AdamFunctorIfffiEEJffffffNS3_10adamMode_tEfEEvlPViT_T0_DpT1_",
	 "0:8 8:8 16:3048 3064:1 3068:4 3072:4 3076:4 3080:4 3084:4 3088:4 3092:4 3096:4", "gpmv", TPCK_LAYOUT_STEP, 36, "f4 f4"},
	{"_Z21kOptimizer32bit2StateI13__nv_bfloat16Li0EEvPT_S2_PfS3_S3_ffffffffiffbi",
	 "0:8 8:8 16:8 24:8 32:8 40:4 44:4 48:4 52:4 56:4 60:4 64:4 68:4 72:4 76:4 80:4 84:1 88:4", "gpmv", TPCK_LAYOUT_STEP, 0, "b2 f4"},
	{"_Z13adamw_kernel2PfS_S_S_lfffffff", "0:8 8:8 16:8 24:8 32:8 40:4 44:4 48:4 52:4 56:4 60:4 64:4", "pgmv", TPCK_LAYOUT_STEP, 0,
	 "f4 f4"},
	{"_Z13adamw_kernel3I13__nv_bfloat16S0_EvPT_PfPT0_S3_S3_mlllffffffffj",
	 "0:8 8:8 16:8 24:8 32:8 40:8 48:8 56:8 64:8 72:4 76:4 80:4 84:4 88:4 92:4 96:4 100:4 104:4", "pgmv", TPCK_LAYOUT_STEP, 0, "b2 f4"},
	{"_Z12adamw_kernelPfPKfS_S_m5Hyperf", "0:8 8:8 16:8 24:8 32:8 40:20 60:4", "ogoo", TPCK_LAYOUT_STEP, 0, "f4 f4"},
	{"_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_19addcdiv_cuda_kernelERNS_18TensorIteratorBaseERKN3c106ScalarEENKUlvE0_clEvENKUlvE5_clEvEUlfffE_St5arrayIPcLm4EELb0EEEviT0_T1_",
	 "0:4 8:16 24:32", "", TPCK_LAYOUT_ADDCDIV, 0, "f4 f4"},
};

static uint32_t described(const char *text, struct tpck_parameter *parameters)
{
	uint32_t count = 0;
	int taken;
	while (sscanf(text, " %u:%u%n", &parameters[count].offset, &parameters[count].size, &taken) == 2) {
		text += taken;
		count++;
	}
	return count;
}

static char letter_of(uint32_t role)
{
	return role < TPCK_TENSOR_STATE ? "?pgmv"[role] : role == TPCK_TENSOR_STATE ? 'o' : '?';
}

static void check_known(const struct known *row)
{
	struct tpck_parameter parameters[TPCK_LAYOUT_PARAMETERS + 1];
	uint32_t count = described(row->parameters, parameters), believed = 0, last;
	struct tpck_layout layout, other;
	char roles[8] = "", elements[32];
	if (!tpck_layout_find(row->name, parameters, count, &layout)) {
		ok(false, "%.60s has a layout", row->name);
		return;
	}
	last = layout.lists - 1;
	for (uint32_t i = 0; i < layout.lists; i++)
		roles[i] = letter_of(layout.role[i]) == 'o' && row->roles[0] == 'p' ? 'x' : letter_of(layout.role[i]);
	snprintf(elements, sizeof elements, "%c%u %c%u", (char)layout.element[0], layout.element[0] >> 8, (char)layout.element[last],
		 layout.element[last] >> 8);
	ok(layout.kind == row->kind && (layout.listed ? layout.room : 0) == row->room && strcmp(elements, row->element) == 0 &&
		   (row->kind != TPCK_LAYOUT_STEP || strcmp(roles, row->roles) == 0),
	   "%s: lists %s of %s, room for %u", layout.family, roles, elements, layout.room);
	/* Whatever differs from the description that the layout was made for, there is none. What stands behind the number of
     * elements of a kernel that is known by a word of its name is nobody's. */
	for (uint32_t i = 0; i < count && !(row->roles[0] == 'o' && i > layout.count); i++) {
		for (int change = 0; change < 3; change++) {
			struct tpck_parameter was = parameters[i];
			parameters[i].size += change == 0 ? 8 : change == 1 ? (uint32_t)-1 : 0;
			parameters[i].offset += change == 2 ? 8 : 0;
			believed += tpck_layout_find(row->name, parameters, count, &other);
			parameters[i] = was;
		}
	}
	if (row->roles[0] != 'o') {
		believed += tpck_layout_find(row->name, parameters, count - 1, &other);
		parameters[count] = (struct tpck_parameter){parameters[count - 1].offset + 8, 8};
		believed += tpck_layout_find(row->name, parameters, count + 1, &other);
	}
	believed += tpck_layout_find(row->name, parameters, 0, &other);
	/* A name that ends anywhere; with sanitizers, nothing behind its end is looked at. */
	for (size_t length = strlen(row->name); length-- > 0;) {
		char *cut = strndup(row->name, length);
		believed += tpck_layout_find(cut, parameters, count, &other) && row->kind == TPCK_LAYOUT_STEP && !layout.listed &&
			    row->roles[0] != 'o';
		free(cut);
	}
	ok(believed == 0, "and none where a parameter has another size or offset, or there are more or fewer (%u)", believed);
}

static void check_strangers(void)
{
	static const char *const names[] = {
		"_Z4gemmPfPKfS_S_i", "_Z17adamw_grad_kernelPfPKfS_S_i", "_Z12adamw_kernelPfS_S_S_i", "_Z12adamw_kernelPfPKfS1_S_i",
		"_Z12adamw_kernelPfPKfS_S_f", "adamw_kernel", "_Z99adamw_kernelPfPKfS_S_i", "_Z12adamw_kernel", "",
		"_Z21kOptimizer32bit2StateIfLi6EEvPT_S1_PfS2_S2_ffffffffiffbi",
	};
	struct tpck_parameter parameters[] = {{0, 8}, {8, 8}, {16, 8}, {24, 8}, {32, 4}};
	struct tpck_layout layout;
	uint32_t found = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (tpck_layout_find(names[i], parameters, 5, &layout)) {
			printf("# %s\n", names[i]);
			found++;
		}
	ok(found == 0, "names that say nothing, or too little, have no layout");
	ok(tpck_layout_find("_Z12adamw_kernelPfPKfS_S_i", parameters, 5, &layout), "with one constant pointer they have");
}

/* ---- launches ------------------------------------------------------------------------------------------------ */

/* A launch's parameters as they lie in memory. */
struct made {
	struct made *next;
	struct tpck_layout layout;
	uint8_t block[32 << 10];
	void *parameter[TPCK_LAYOUT_PARAMETERS];
	uint32_t grid[3];
};

static struct made *launches; /* all: a layout must outlive what is gathered */

static struct made *launch(const char *name, const char *parameters)
{
	struct made *made = calloc(1, sizeof *made);
	struct tpck_parameter described_as[TPCK_LAYOUT_PARAMETERS];
	uint32_t count = described(parameters, described_as);
	if (!tpck_layout_find(name, described_as, count, &made->layout))
		abort();
	made->next = launches;
	launches = made;
	memset(made->block, 0xa5, sizeof made->block); /* what a launch leaves unused holds anything */
	for (uint32_t i = 0; i < count; i++)
		made->parameter[i] = made->block + described_as[i].offset;
	made->grid[0] = made->grid[1] = made->grid[2] = 1;
	return made;
}

/* Tensor i of a launch on lists: its elements, and its address in each of the lists. */
static void set_tensor(struct made *made, uint32_t i, uint64_t elements, const uint64_t *addresses)
{
	uint8_t *lists = made->parameter[made->layout.parameter];
	for (uint32_t list = 0; list < made->layout.lists; list++)
		memcpy(lists + ((size_t)list * made->layout.room + i) * 8, &addresses[list], 8);
	memcpy(lists + made->layout.numels_at + i * 8, &elements, 8);
	lists[made->layout.block_tensors_at + 2 * i] = (uint8_t)i;
	lists[made->layout.block_tensors_at + 2 * i + 1] = (uint8_t)(i >> 8);
	if (made->layout.steps_at)
		memset(lists + made->layout.steps_at + i * 8, 0, 8);
	made->grid[0] = i + 1;
}

static void set_real(struct made *made, uint32_t parameter, double value)
{
	memcpy(made->parameter[parameter], &value, sizeof value);
}

static void set_float(struct made *made, uint32_t parameter, float value)
{
	memcpy(made->parameter[parameter], &value, sizeof value);
}

static void go(struct made *made)
{
	tpck_roles_launch(&made->layout, made->parameter, made->grid);
}

enum { COUNT = 7, N = 100, PARAMETERS = 0x100000, GRADIENTS = 0x200000, FIRST = 0x300000, SECOND = 0x400000, OTHER = 0x500000 };

/* Live memory: parameters, moments and one more in a block each, as a caching allocator has it, gradients in their own. */
static const struct tpck_image_row rows[] = {
	{.address = SECOND, .bytes = 0x10000, .order = 1}, {.address = PARAMETERS, .bytes = 0x10000, .order = 2},
	{.address = FIRST, .bytes = 0x10000, .order = 3},  {.address = GRADIENTS, .bytes = 0x10000, .order = 4},
	{.address = OTHER, .bytes = 0x10000, .order = 5},
};

static uint64_t at(uint64_t base, uint32_t i)
{
	return base + i * 512ull;
}

static void gathered_resolve(struct tpck_roles *roles)
{
	struct tpck_gathered *gathered = tpck_roles_take();
	if (tpck_roles_resolve(gathered, rows, sizeof rows / sizeof *rows, roles))
		abort();
	tpck_roles_give_back(gathered);
}

/* Whether tensor number i of the list at base has this role and place. */
static bool is(const struct tpck_roles *roles, uint64_t base, uint32_t i, uint32_t role)
{
	for (uint32_t t = 0; t < roles->tensors; t++)
		if (roles->tensor[t].address == at(base, i))
			return roles->tensor[t].role == role && roles->tensor[t].position == i && roles->tensor[t].elements == N &&
			       rows[roles->tensor[t].row].address == base;
	return role == TPCK_TENSOR_NONE;
}

static bool all_are(const struct tpck_roles *roles, uint64_t base, uint32_t role)
{
	bool good = true;
	for (uint32_t i = 0; i < COUNT; i++)
		good = good && is(roles, base, i, role);
	return good;
}

/* A launch on lists at these bases, of tensors from..to. */
static struct made *on_lists(const char *name, const char *parameters, uint32_t from, uint32_t to, uint64_t a, uint64_t b,
			     uint64_t c, uint64_t d)
{
	struct made *made = launch(name, parameters);
	for (uint32_t i = from; i < to; i++)
		set_tensor(made, i - from, N, (uint64_t[]){at(a, i), at(b, i), at(c, i), at(d, i), 0});
	return made;
}

static const char adam_parameters[] = "0:25544 25544:1 25552:8 25560:8 25568:8 25576:8 25584:8 25592:8 25600:1 25608:8 25616:8";

static struct made *fused_adam(uint32_t from, uint32_t to, uint64_t first)
{
	struct made *made = on_lists(ADAM, adam_parameters, from, to, PARAMETERS, GRADIENTS, first, SECOND);
	uint64_t none = 0, found_inf = OTHER + 0x40;
	memcpy(made->parameter[2], &none, 8);
	set_real(made, 3, 0.001);
	set_real(made, 4, 0.9);
	set_real(made, 5, 0.95);
	set_real(made, 6, 0.1);
	set_real(made, 7, 1e-8);
	memcpy(made->parameter[9], &none, 8);
	memcpy(made->parameter[10], &found_inf, 8);
	return made;
}

/* Those on the device are read where they lie in the image. */
static void check_read_scalars(const struct tpck_roles *roles)
{
	const struct tpck_image_tensor *last = &roles->tensor[roles->tensors - 1];
	struct tpck_image_row *image = calloc(last->row + 1, sizeof *image);
	const float values[2] = {-7, 1};
	char data[64];

	image[last->row] = (struct tpck_image_row){.address = last->address - 4, .bytes = 8, .data_offset = 16};
	memcpy(data + 16, values, sizeof values);
	tpck_roles_read_scalars(roles, image, last->row, data);
	ok(!(roles->optimizer[0].known & 1u << TPCK_SCALAR_FOUND_INF), "a row that is not there has no scalar");
	image[last->row].bytes = 7;
	tpck_roles_read_scalars(roles, image, last->row + 1, data);
	ok(!(roles->optimizer[0].known & 1u << TPCK_SCALAR_FOUND_INF), "nor one that ends before");
	image[last->row].bytes = 8;
	tpck_roles_read_scalars(roles, image, last->row + 1, data);
	ok(roles->optimizer[0].known & 1u << TPCK_SCALAR_FOUND_INF && roles->optimizer[0].scalar[TPCK_SCALAR_FOUND_INF] == 1,
	   "and what lies on the device is read out of the image");
	free(image);
}

static void check_fused(void)
{
	struct tpck_roles roles;
	struct made *made = fused_adam(0, COUNT, FIRST), *more;
	go(made);
	gathered_resolve(&roles);
	ok(all_are(&roles, PARAMETERS, TPCK_TENSOR_PARAMETER) && all_are(&roles, GRADIENTS, TPCK_TENSOR_GRADIENT) &&
		   all_are(&roles, FIRST, TPCK_TENSOR_MOMENT1) && all_are(&roles, SECOND, TPCK_TENSOR_MOMENT2),
	   "fused Adam: each list has its role, each tensor its place");
	ok(roles.tensors == 4 * COUNT + 1 && roles.tensor[roles.tensors - 1].role == TPCK_TENSOR_FOUND_INF &&
		   roles.tensor[roles.tensors - 1].address == OTHER + 0x40,
	   "and found_inf on the device, and nothing else");
	ok(roles.optimizers == 1 && roles.optimizer[0].parameters == COUNT && roles.optimizer[0].known == 0x1f &&
		   roles.optimizer[0].scalar[TPCK_SCALAR_LR] == 0.001 && roles.optimizer[0].scalar[TPCK_SCALAR_BETA2] == 0.95 &&
		   roles.optimizer[0].scalar[TPCK_SCALAR_WEIGHT_DECAY] == 0.1 && roles.optimizer[0].scalar[TPCK_SCALAR_EPS] == 1e-8,
	   "and the optimizer's scalars");
	check_read_scalars(&roles);
	tpck_roles_free(&roles);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "what was taken is gone");
	tpck_roles_free(&roles);
	/* Another learning rate is another list, with places of its own. */
	made = fused_adam(0, 3, FIRST);
	more = fused_adam(3, COUNT, FIRST);
	set_real(more, 3, 0.5);
	go(made);
	go(more);
	gathered_resolve(&roles);
	ok(roles.optimizers == 2 && roles.optimizer[0].parameters == 3 && roles.optimizer[1].parameters == COUNT - 3 &&
		   roles.tensors == 4 * COUNT + 1,
	   "two groups of parameters are two lists");
	tpck_roles_free(&roles);
	/* A launch has room for so many blocks: the last tensor goes on in the next one. */
	for (int changed = 0; changed < 2; changed++) {
		made = fused_adam(0, 3, FIRST);
		made->grid[0] = 2240;
		memcpy((uint8_t *)made->parameter[0] + made->layout.block_tensors_at + 2 * 2239, &(uint16_t){2}, 2);
		more = fused_adam(changed ? 3 : 2, COUNT, FIRST);
		if (changed)
			set_real(more, 3, 0.5);
		go(made);
		tpck_roles_launch(&made->layout, more->parameter, more->grid); /* of the same function */
		gathered_resolve(&roles);
		ok(changed ? roles.optimizers == 2 && roles.optimizer[0].parameters == 3
			   : roles.optimizers == 1 && roles.optimizer[0].parameters == COUNT &&
				     all_are(&roles, PARAMETERS, TPCK_TENSOR_PARAMETER),
		   changed ? "a full launch may be the last of its list" : "a list may go on in another launch, in the midst of a tensor");
		tpck_roles_free(&roles);
	}
}

static void check_doubt(void)
{
	struct tpck_roles roles;
	struct made *made = fused_adam(0, COUNT, FIRST);
	made->grid[0] = 2241; /* one that had room for so many blocks would have a tensor here */
	memset((uint8_t *)made->parameter[0] + made->layout.block_tensors_at + 2 * 2240, 0, 2);
	go(made);
	made->grid[0] = COUNT;
	made->grid[1] = 2;
	go(made);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "grids that no such launch has say nothing");
	tpck_roles_free(&roles);
	made->grid[1] = 1;
	tpck_roles_launch(&made->layout, NULL, made->grid);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "nor do parameters that were given in another way");
	tpck_roles_free(&roles);
	set_tensor(made, 3, N, (uint64_t[]){0xdead0000, at(GRADIENTS, 3), at(FIRST, 3), at(SECOND, 3), 0});
	made->grid[0] = COUNT;
	go(made);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "a launch with a parameter that lies nowhere is not believed at all");
	tpck_roles_free(&roles);
	set_tensor(made, 3, 0x10000, (uint64_t[]){at(PARAMETERS, 3), at(GRADIENTS, 3), at(FIRST, 3), at(SECOND, 3), 0});
	made->grid[0] = COUNT;
	go(made);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "nor one with a tensor that ends outside of its block");
	tpck_roles_free(&roles);
	/* Two launches that call the same memory different things. */
	made = fused_adam(0, COUNT, FIRST);
	go(made);
	made = fused_adam(0, 1, PARAMETERS + 64);
	go(made);
	gathered_resolve(&roles);
	ok(is(&roles, PARAMETERS, 0, TPCK_TENSOR_NONE) && is(&roles, PARAMETERS, 1, TPCK_TENSOR_PARAMETER),
	   "memory that overlaps something else has no role");
	tpck_roles_free(&roles);
}

static void run(struct made *made, uint32_t parameter, float value)
{
	if (parameter)
		set_float(made, parameter, value);
	go(made);
}

static const char scalar2[] = "0:24200 24200:1 24201:1 24204:4", scalar1[] = "0:25768 25768:1 25769:1 25772:4",
		  unary2[] = "0:24200 24200:1 24201:1", list3[] = "0:25536 25536:1 25537:1";

/* Adam by foreach; with the decay added to gradients first it works on their sum, a temporary tensor. */
static void foreach_adam(bool decayed)
{
	uint64_t g = decayed ? OTHER : GRADIENTS, temporary = OTHER + 0x8000;
	struct made *made;
	if (decayed)
		run(on_lists(SUM, scalar2, 0, COUNT, GRADIENTS, PARAMETERS, OTHER, 0), 3, 0.01f);
	run(on_lists(LERP, scalar2, 0, COUNT, FIRST, g, 0, 0), 3, 0.125f);
	run(on_lists(SCALE, scalar1, 0, COUNT, SECOND, 0, 0, 0), 3, 0.75f);
	run(on_lists(ADDCMUL, scalar2, 0, COUNT, SECOND, g, g, 0), 3, 0.25f);
	run(on_lists(SQRT, unary2, 0, COUNT, SECOND, temporary, 0, 0), 0, 0);
	made = on_lists(ADDCDIV, list3, 0, COUNT, PARAMETERS, FIRST, temporary, 0);
	set_float(made, 0, 0);
	for (uint32_t i = 0; i < COUNT; i++)
		set_tensor(made, i, N, (uint64_t[]){at(PARAMETERS, i), at(FIRST, i), at(temporary, i), 0, 0});
	memcpy((uint8_t *)made->parameter[0] + made->layout.values_at, &(float){-0.5f}, 4);
	run(made, 0, 0);
}

static void check_foreach(void)
{
	struct tpck_roles roles;
	for (int decayed = 0; decayed < 2; decayed++) {
		foreach_adam(decayed);
		gathered_resolve(&roles);
		ok(all_are(&roles, PARAMETERS, TPCK_TENSOR_PARAMETER) && all_are(&roles, GRADIENTS, TPCK_TENSOR_GRADIENT) &&
			   all_are(&roles, FIRST, TPCK_TENSOR_MOMENT1) && all_are(&roles, SECOND, TPCK_TENSOR_MOMENT2) &&
			   roles.tensors == 4 * COUNT,
		   "Adam by foreach: roles by what is computed from what%s", decayed ? ", decay in the gradients" : "");
		ok(roles.optimizers == 1 && roles.optimizer[0].scalar[TPCK_SCALAR_BETA1] == 0.875 &&
			   roles.optimizer[0].scalar[TPCK_SCALAR_BETA2] == 0.75 && roles.optimizer[0].scalar[TPCK_SCALAR_STEP_SIZE] == -0.5 &&
			   roles.optimizer[0].known == (1u << TPCK_SCALAR_BETA1 | 1u << TPCK_SCALAR_BETA2 | 1u << TPCK_SCALAR_STEP_SIZE) &&
			   strcmp(roles.optimizer[0].family, "torch foreach adam") == 0,
		   "and the scalars that its launches have");
		tpck_roles_free(&roles);
	}
}

static void check_sgd(void)
{
	struct tpck_roles roles;
	run(on_lists(ADD, scalar2, 0, COUNT, PARAMETERS, GRADIENTS, 0, 0), 3, -0.25f);
	gathered_resolve(&roles);
	ok(all_are(&roles, PARAMETERS, TPCK_TENSOR_PARAMETER) && all_are(&roles, GRADIENTS, TPCK_TENSOR_GRADIENT) &&
		   roles.optimizer[0].scalar[TPCK_SCALAR_LR] == 0.25,
	   "SGD");
	tpck_roles_free(&roles);
	/* and an average of the parameters behind it */
	run(on_lists(SCALE, scalar1, 0, COUNT, FIRST, 0, 0, 0), 3, 0.5f);
	run(on_lists(ADD, scalar2, 0, COUNT, FIRST, GRADIENTS, 0, 0), 3, 1);
	run(on_lists(ADD, scalar2, 0, COUNT, PARAMETERS, FIRST, 0, 0), 3, -0.25f);
	run(on_lists(SCALE, scalar1, 0, COUNT, OTHER, 0, 0, 0), 3, 0.5f);
	run(on_lists(ADD, scalar2, 0, COUNT, OTHER, PARAMETERS, 0, 0), 3, 0.5f);
	gathered_resolve(&roles);
	ok(all_are(&roles, PARAMETERS, TPCK_TENSOR_PARAMETER) && all_are(&roles, GRADIENTS, TPCK_TENSOR_GRADIENT) &&
		   all_are(&roles, FIRST, TPCK_TENSOR_MOMENT1) && all_are(&roles, OTHER, TPCK_TENSOR_NONE) &&
		   roles.tensors == 3 * COUNT && roles.optimizer[0].scalar[TPCK_SCALAR_MOMENTUM] == 0.5,
	   "SGD with momentum, and an average of its parameters is none of it");
	tpck_roles_free(&roles);
	/* p += x where x was computed in the phase */
	run(on_lists(SQRT, unary2, 0, COUNT, GRADIENTS, OTHER, 0, 0), 0, 0);
	run(on_lists(ADD, scalar2, 0, COUNT, PARAMETERS, OTHER, 0, 0), 3, -0.25f);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "what was computed within the phase is no gradient");
	tpck_roles_free(&roles);
	run(on_lists(SUM, scalar2, 0, COUNT, GRADIENTS, PARAMETERS, OTHER, 0), 3, 0.01f);
	run(on_lists(SQRT, unary2, 0, COUNT, SECOND, OTHER, 0, 0), 0, 0);
	run(on_lists(ADD, scalar2, 0, COUNT, PARAMETERS, OTHER, 0, 0), 3, -0.25f);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "nor what was there before a temporary tensor");
	tpck_roles_free(&roles);
	run(on_lists(ADD, scalar2, 0, COUNT, PARAMETERS, GRADIENTS, 0, 0), 3, -0.25f);
	tpck_roles_unknown();
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "nor is anything where a launch of unknown layout may have written it");
	tpck_roles_free(&roles);
	run(on_lists(ADD, scalar2, 0, COUNT, PARAMETERS, GRADIENTS, 0, 0), 3, -0.25f);
	tpck_roles_forget();
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "an iteration that was forgotten says nothing");
	tpck_roles_free(&roles);
}

static void check_scalars(void)
{
	struct tpck_roles_scalar scalars[16];
	struct made *made = fused_adam(0, 3, FIRST), *more = fused_adam(3, COUNT, FIRST);
	size_t count;
	tpck_roles_forget();
	ok(tpck_roles_scalars(scalars, 16) == 0, "nothing was told");
	go(made);
	tpck_roles_launch(&made->layout, more->parameter, more->grid);
	ok(tpck_roles_scalars(scalars, 16) == 5 && scalars[0].launch == 0 && scalars[0].what == TPCK_SCALAR_LR &&
		   scalars[0].value == 0.001 && scalars[2].what == TPCK_SCALAR_BETA2 && scalars[2].value == 0.95,
	   "what launches were told, once where they were told the same");
	set_real(more, 3, 0.5);
	tpck_roles_launch(&made->layout, more->parameter, more->grid);
	run(on_lists(LERP, scalar2, 0, COUNT, FIRST, GRADIENTS, 0, 0), 3, 0.125f);
	count = tpck_roles_scalars(scalars, 16);
	ok(count == 11 && scalars[5].launch == 2 && scalars[5].value == 0.5 && scalars[10].launch == 3 &&
		   scalars[10].what == TPCK_SCALARS && scalars[10].value == 0.125,
	   "again where it differs, and an operation's factor");
	ok(tpck_roles_scalars(scalars, 2) == 2, "as much as there is room for");
	tpck_roles_forget();
}

static void check_much(void)
{
	struct tpck_roles roles;
	struct made *made = fused_adam(0, 100, FIRST);
	for (int i = 0; i < 2000; i++)
		go(made);
	gathered_resolve(&roles);
	ok(roles.tensors == 0, "an iteration with more launches than are gathered has no roles, and no harm is done");
	tpck_roles_free(&roles);
	go(made);
	gathered_resolve(&roles);
	ok(roles.tensors > 0 && roles.optimizer[0].parameters == 100, "the next one has");
	tpck_roles_free(&roles);
}

int main(void)
{
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		check_known(&known[i]);
	check_strangers();
	check_fused();
	check_doubt();
	check_foreach();
	check_sgd();
	check_scalars();
	check_much();
	while (launches) {
		struct made *next = launches->next;
		free(launches);
		launches = next;
	}
	printf("1..%d\n", checks);
	return failed ? 1 : 0;
}
