/* SPDX-License-Identifier: Apache-2.0 */
/* The inference engine on made-up sequences: what trainers do to an iteration, one habit at a time. TAP. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/infer/infer.h"
#include "runtime/infer/kernel_names.h"

static int tests, failures;

static void ok(bool good, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	printf("%sok %d - ", good ? "" : "not ", ++tests);
	vprintf(format, args);
	printf("\n");
	va_end(args);
	failures += !good;
}

/* --- a play: operations fed to an engine, and where iterations really end --------------------------------------- */

enum { MOST = 512 };

struct play {
	struct tpck_infer *infer;
	struct tpck_infer *long_way; /* of the short way's test: is fed the same, and must say the same */
	int differ;
	bool names;
	uint64_t now;
	struct {
		uint64_t from, to; /* a boundary may stand before these operations */
		int found;
	} ends[MOST];
	int end_count, wrong, begins;
	bool ended; /* the window of the last end is still open */
	unsigned random;
};

static struct play *begin(bool names, bool pattern)
{
	struct play *play = calloc(1, sizeof *play);
	struct tpck_infer_options options = {names, pattern, false};
	if (!play || !(play->infer = tpck_infer_new(&options)))
		abort();
	play->names = names;
	play->random = 1;
	return play;
}

static unsigned chance(struct play *play, unsigned below)
{
	play->random = play->random * 1664525u + 1013904223u;
	return (play->random >> 8) % below;
}

static void boundary(struct play *play, uint64_t at)
{
	for (int i = 0; i < play->end_count; i++)
		if (at >= play->ends[i].from && at <= play->ends[i].to) {
			play->ends[i].found++;
			if (play->ends[i].found == 1)
				return;
		}
	play->wrong++;
	printf("# a boundary before operation %" PRIu64 " is wrong\n", at);
}

struct verdicts {
	uint64_t at[MOST * 2];
	int count;
};

static struct verdicts verdicts;

static void feed(struct play *play, struct tpck_token token)
{
	unsigned verdict = tpck_infer_feed(play->infer, &token);
	if (play->long_way && tpck_infer_feed(play->long_way, &token) != verdict && !play->differ++)
		printf("# operation %" PRIu64 " goes another way\n", play->now);
	if (verdict & TPCK_V_BOUNDARY_BEFORE && verdicts.count < 2 * MOST)
		verdicts.at[verdicts.count++] = play->now;
	if (verdict & TPCK_V_BOUNDARY_AFTER && verdicts.count < 2 * MOST)
		verdicts.at[verdicts.count++] = play->now + 1;
	play->begins += (verdict & TPCK_V_OPT_BEGIN) != 0;
	play->now++;
}

static uint64_t identity(const char *name)
{
	uint64_t digest = 14695981039346656037ull;
	for (; *name; name++)
		digest = (digest ^ (unsigned char)*name) * 1099511628211ull;
	return digest;
}

static void launch_on(struct play *play, uint32_t thread, const char *name, uint32_t grid)
{
	feed(play, (struct tpck_token){.func = identity(name), .name = name, .grid = {grid, 1, 1}, .block = {128, 1, 1},
								   .thread = thread, .op = TPCK_OP_KERNEL});
}

static void launch(struct play *play, const char *name, uint32_t grid)
{
	launch_on(play, 0, name, grid);
}

static void copy(struct play *play, enum tpck_op op, uint64_t bytes)
{
	feed(play, (struct tpck_token){.bytes = bytes, .op = op});
}

/* The optimizer's last operation has been fed. */
static void end_iteration(struct play *play)
{
	if (play->end_count < MOST)
		play->ends[play->end_count++].from = play->now;
	play->ends[play->end_count - 1].to = play->now;
	play->ended = true;
}

/* The next operation is the first of the next iteration. */
static void begin_iteration(struct play *play)
{
	if (play->ended)
		play->ends[play->end_count - 1].to = play->now;
	play->ended = false;
}

/* Checks: nothing wrong, and everything found from the given iteration on (counted from 1; 0: nothing may be said). */
static void finish(struct play *play, int from, const char *what)
{
	int missed = 0, found = 0;
	begin_iteration(play);
	for (int i = 0; i < verdicts.count; i++)
		boundary(play, verdicts.at[i]);
	for (int i = 0; i < play->end_count; i++) {
		found += play->ends[i].found > 0;
		missed += from > 0 && i + 1 >= from && i + 1 < play->end_count && !play->ends[i].found;
	}
	ok(play->wrong == 0 && missed == 0 && (from > 0 || verdicts.count == 0), "%s: %d of %d found, %d wrong, %d missed%s", what,
	   found, play->end_count, play->wrong, missed, play->names ? "" : ", without names");
	if (play->wrong || missed)
		printf("# %s\n", tpck_infer_explain(play->infer));
	verdicts.count = 0;
	tpck_infer_free(play->infer);
	free(play);
}

/* --- what iterations are made of ---------------------------------------------------------------------------------- */

static void forward(struct play *play, int layers, uint32_t length)
{
	launch(play, "embedding_kernel", length);
	for (int i = 0; i < layers; i++) {
		launch(play, "layernorm_kernel", length);
		launch(play, "gemm_kernel", length * 4);
		launch(play, "attention_kernel", length * 2);
		launch(play, "gemm_kernel", length);
	}
	launch(play, "head_kernel", length);
	launch(play, "loss_kernel", 1);
}

static void backward(struct play *play, uint32_t thread, int layers, uint32_t length)
{
	launch_on(play, thread, "loss_grad_kernel", 1);
	for (int i = 0; i < layers; i++) {
		launch_on(play, thread, "gemm_kernel", length);
		launch_on(play, thread, "gemm_kernel", length + 7);
		launch_on(play, thread, "attention_grad_kernel", length * 2);
		launch_on(play, thread, "layernorm_grad_kernel", length);
	}
	launch_on(play, thread, "embedding_grad_kernel", length);
}

static void micro_batch(struct play *play, uint32_t thread, uint32_t length)
{
	copy(play, TPCK_OP_H2D, 8 * length);
	forward(play, 3, length);
	backward(play, thread, 3, length);
}

static void update(struct play *play, const char *name, int tensors)
{
	for (int i = 0; i < tensors; i++)
		launch(play, name, 1u + (uint32_t)(i * 37 % 11) * 4);
}

/* --- the habits -------------------------------------------------------------------------------------------------- */

static void accumulation(bool names, int micro, bool read_loss)
{
	struct play *play = begin(names, true);
	char what[64];
	for (int step = 0; step < 12; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_MEMSET, 4096);
		for (int i = 0; i < micro; i++)
			micro_batch(play, 0, 32);
		update(play, "adamw_kernel", 20);
		end_iteration(play);
		if (read_loss)
			copy(play, TPCK_OP_D2H, 4);
	}
	snprintf(what, sizeof what, "%d micro-batches%s", micro, read_loss ? ", the loss read" : "");
	finish(play, names ? 2 : 6, what);
}

static void changing_lengths(bool names)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 20; step++) {
		begin_iteration(play);
		micro_batch(play, 0, 8 + chance(play, 100));
		update(play, "sgd_momentum_update", 14);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, names ? 4 : 6, "changing lengths");
}

static void evaluation(bool names)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 20; step++) {
		begin_iteration(play);
		micro_batch(play, 0, 32);
		update(play, "adamw_kernel", 20);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
		begin_iteration(play);
		if (step % 3 == 2)
			for (int i = 0; i < 4; i++) {
				copy(play, TPCK_OP_H2D, 256);
				forward(play, 3, 32);
				copy(play, TPCK_OP_D2H, 4);
			}
	}
	finish(play, names ? 2 : 6, "evaluation every third step");
}

static void alternation(bool names, bool equal_shapes)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 16; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_H2D, 4096);
		forward(play, 2, 16);
		backward(play, 0, 2, 16);
		update(play, "adam_kernel", 12);
		launch(play, "noise_kernel", 3);
		forward(play, 4, 20);
		backward(play, 0, 5, 20);
		update(play, "adam_kernel", equal_shapes ? 12 : 9);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 8);
	}
	finish(play, names ? 2 : 99, equal_shapes ? "two equal optimizers in turn" : "two optimizers in turn");
}

/* Two models in turn, tensor by tensor, each with a batch of its own. Their last tensors are of one size. */
static void batches_in_turn(bool names)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 16; step++) {
		begin_iteration(play);
		for (int model = 0; model < 2; model++) {
			copy(play, TPCK_OP_H2D, 4096);
			forward(play, 2 + 2 * model, 16 + 4 * (uint32_t)model);
			backward(play, 0, 2 + 2 * model, 16 + 4 * (uint32_t)model);
			update(play, "adam_kernel", model ? 23 : 12);
		}
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 8);
	}
	finish(play, names ? 3 : 6, "two models in turn, each with its batch");
}

/* Three steps of one model and one of another, each with a batch of its own, whose last tensors are of one size. What it does first looks like a plain
 * loop; once it has come round twice nothing is told that is no end. */
static void several_steps_of_one(bool names)
{
	enum { STEPS = 16, SETTLED = 2 };
	struct play *play = begin(names, true);
	int wrong = 0, early = 0, missed = 0;
	for (int step = 0; step < STEPS; step++) {
		begin_iteration(play);
		for (int turn = 0; turn < 4; turn++) {
			int model = turn == 3;
			copy(play, TPCK_OP_H2D, 4096);
			forward(play, 2 + 2 * model, 16 + 4 * (uint32_t)model);
			backward(play, 0, 2 + 2 * model, 16 + 4 * (uint32_t)model);
			if (model)
				launch(play, "adam_kernel", 77);
			update(play, "adam_kernel", model ? 23 : 12);
		}
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 8);
		for (int i = 0; i < verdicts.count; i++)
			boundary(play, verdicts.at[i]);
		verdicts.count = 0;
		early = step < SETTLED ? play->wrong : early;
	}
	wrong = play->wrong - early;
	for (int i = 4; i + 1 < play->end_count; i++)
		missed += !play->ends[i].found;
	ok(early <= 5 && wrong == 0 && missed == 0, "three steps of one model and one of another: %d wrong, %d of them later, %d missed%s", play->wrong, wrong, missed,
	   names ? "" : ", without names");
	tpck_infer_free(play->infer);
	free(play);
}

static void skipped_steps(bool names)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 40; step++) {
		bool skip = step == 9 || step == 10 || step % 13 == 12;
		begin_iteration(play);
		micro_batch(play, 0, 32);
		launch(play, "check_finite_kernel", 9);
		copy(play, TPCK_OP_D2H, 4);
		if (!skip)
			update(play, "adamw_kernel", 20);
		end_iteration(play);
		launch(play, "scale_update_kernel", 1);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, names ? 3 : 99, "skipped steps");
}

static void clipping(bool names)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 30; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_MEMSET, 4096);
		micro_batch(play, 0, 32);
		launch(play, "norm_part_kernel", 16);
		launch(play, "norm_sum_kernel", 1);
		copy(play, TPCK_OP_D2H, 4);
		if (chance(play, 3))
			launch(play, "clip_kernel", 77);
		update(play, "adamw_kernel", 20);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, names ? 4 : 6, "clipping when needed");
}

static void unscaling(void)
{
	/* A run of launches, one a tensor, that is not the optimizer, which here is one launch without a telling name. */
	struct play *play = begin(false, true);
	for (int step = 0; step < 20; step++) {
		begin_iteration(play);
		micro_batch(play, 0, 32);
		update(play, "a", 20);
		copy(play, TPCK_OP_D2H, 4);
		launch(play, "b", 100);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 99, "gradients unscaled one by one, one launch of the optimizer");
}

static void two_threads(bool names)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 12; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_H2D, 4096);
		forward(play, 3, 32);
		backward(play, 1, 3, 32);
		for (uint32_t i = 0; i < 10; i++) {
			launch(play, "void at::native::vectorized_elementwise_kernel<4, MulScalarFunctor>(int)", 1 + i % 5);
			launch(play, "void at::native::vectorized_elementwise_kernel<4, AddFunctor>(int)", 1 + i % 5);
		}
		end_iteration(play);
	}
	finish(play, names ? 2 : 4, "backward from another thread, arithmetic shared by all");
}

static void cleared_at_once(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 12; step++) {
		begin_iteration(play);
		forward(play, 3, 32);
		backward(play, 1, 3, 32);
		for (uint32_t i = 0; i < 16; i++)
			launch(play, "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)", 1 + i % 5);
		end_iteration(play);
		for (uint32_t i = 0; i < 16; i++)
			launch(play, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>(int)", 1 + i % 5);
	}
	finish(play, 2, "gradients cleared by kernels at once, no copies at all");
}

static void graphs(bool warm)
{
	struct play *play = begin(true, true);
	struct tpck_token node = {.name = "adamw_kernel", .func = identity("adamw_kernel"), .op = TPCK_OP_KERNEL};
	for (int step = 0; step < (warm ? 5 : 0); step++) {
		begin_iteration(play);
		micro_batch(play, 0, 32);
		update(play, "adamw_kernel", 20);
		end_iteration(play);
	}
	tpck_infer_graph_node(play->infer, 7, &node);
	for (int step = 0; step < 10; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_H2D, 128);
		feed(play, (struct tpck_token){.func = 7, .op = TPCK_OP_GRAPH});
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 2, warm ? "a graph takes over" : "a graph from the start");
}

static void inference_graph(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 30; step++) {
		copy(play, TPCK_OP_H2D, 4096);
		feed(play, (struct tpck_token){.func = 7, .op = TPCK_OP_GRAPH});
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 0, "inference by a graph");
}

static void inference(bool names, int layers)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 30; step++) {
		copy(play, TPCK_OP_H2D, 4096);
		forward(play, layers, 32);
		copy(play, TPCK_OP_D2H, 4096);
	}
	finish(play, 0, "inference");
}

static void noise(bool names)
{
	static const char *const kernels[] = {"a_kernel", "b_kernel", "c_kernel", "gemm", "layernorm_kernel", "d_kernel"};
	struct play *play = begin(names, true);
	for (int i = 0; i < 20000; i++)
		if (chance(play, 9) == 0)
			copy(play, (enum tpck_op)(1 + chance(play, 4)), 1u << chance(play, 16));
		else
			launch_on(play, chance(play, 2), kernels[chance(play, 6)], 1 + chance(play, 4));
	finish(play, 0, "operations in no order");
}

static void first_step_differs(void)
{
	struct play *play = begin(true, true);
	for (int i = 0; i < 30; i++)
		copy(play, TPCK_OP_H2D, 1000);
	for (int step = 0; step < 10; step++) {
		begin_iteration(play);
		micro_batch(play, 0, 32);
		if (step == 0)
			for (int i = 0; i < 12; i++)
				copy(play, TPCK_OP_D2D, 1000);
		else
			launch(play, "void multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float, 1, 1, 0>>()", 10);
		launch(play, "void multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>>()", 10);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 2, "a first step that makes its state");
}

static void trailing_arithmetic(void)
{
	/* Per tensor: lerp, addcdiv, and last a plain addition, which alone would not be known for the optimizer's. */
	struct play *play = begin(true, true);
	for (int step = 0; step < 10; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		for (uint32_t i = 0; i < 8; i++) {
			launch(play, "void at::native::vectorized_elementwise_kernel<4, lerp_scalar_kernel>(int)", 1 + i % 3);
			launch(play, "void at::native::vectorized_elementwise_kernel<4, addcdiv_cuda_kernel>(int)", 1 + i % 3);
			launch(play, "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)", 1 + i % 3);
		}
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 3, "arithmetic at the end of the optimizer");
}

static void one_change(void)
{
	/* Parameters are frozen half way: the phase has other launches from then on. */
	struct play *play = begin(true, true);
	for (int step = 0; step < 30; step++) {
		begin_iteration(play);
		micro_batch(play, 0, 32);
		update(play, "adamw_kernel", step < 15 ? 20 : 11);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 2, "parameters frozen half way");
}

#define FOREACH(functor) "void multi_tensor_apply_kernel<TensorListMetadata<2>, " functor ">()"
#define POINTWISE(functor) "void at::native::vectorized_elementwise_kernel<4, " functor ">(int)"

static void foreach_adamw(struct play *play)
{
	launch(play, FOREACH("BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies"), 10);
	launch(play, FOREACH("TernaryOpScalarFunctor<float, 2, 2, 0>, LerpFunctor"), 10);
	launch(play, FOREACH("PointwiseOpScalarFunctor<float, 3, 3, 0>, std::multiplies"), 10);
	launch(play, FOREACH("UnaryOpFunctor<float, 2, 1, 1>, Sqrt"), 10);
	launch(play, FOREACH("PointwiseOpScalarListFunctor<float, 3, 3, 0>, std::divides"), 10);
}

static void muon(struct play *play, int matrices)
{
	for (int i = 0; i < matrices; i++) {
		launch(play, POINTWISE("lerp_scalar_kernel"), 20);
		launch(play, POINTWISE("direct_copy_kernel_cuda"), 20);
		for (int k = 0; k < 5; k++)
			launch(play, "gemm_bf16_kernel", 4);
		launch(play, POINTWISE("MulFunctor<float>"), 20);
		launch(play, POINTWISE("CUDAFunctor_add<float>"), 20);
	}
}

/* Only part of the optimizer bears names that are known: its end is where the next batch comes, if what is between is
 * like what was between its launches; else better no boundary than one in its middle. */
static void partly_known(int matrices)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		foreach_adamw(play);
		muon(play, matrices);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, matrices == 1 ? 99 : 3, matrices == 1 ? "one matrix by Muon behind AdamW" : "Muon behind AdamW");
}

/* The same where batches lie on the device and only the targets are copied, in the middle of the forward pass. */
static void partly_known_resident(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		begin_iteration(play);
		forward(play, 3, 32);
		copy(play, TPCK_OP_H2D, 4096);
		backward(play, 1, 3, 32);
		foreach_adamw(play);
		muon(play, 4);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 99, "Muon behind AdamW, a copy in the middle of the forward pass");
}

static void known_last(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		muon(play, 3);
		foreach_adamw(play);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 2, "AdamW behind Muon");
}

static void averaged_sgd(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		launch(play, FOREACH("BinaryOpListAlphaFunctor<float, 3, 2, 2>, std::plus"), 10);
		launch(play, FOREACH("PointwiseOpListFunctor<float, 3, 3, 0>, std::multiplies"), 10);
		launch(play, FOREACH("PointwiseOpListFunctor<float, 3, 3, 0>, std::multiplies"), 11);
		for (int i = 0; i < 8; i++) {
			copy(play, TPCK_OP_D2H, 4);
			copy(play, TPCK_OP_H2D, 4);
		}
		launch(play, FOREACH("UnaryOpFunctor<float, 2, 1, 1>, CopyFunctor"), 8);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 4, "averaged SGD, whose averages come last");
}

/* An average of the weights now and then, right behind the optimizer. */
static void weight_average(int every)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 24; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		foreach_adamw(play);
		end_iteration(play);
		if (step % every == every - 1)
			launch(play, FOREACH("TernaryOpScalarFunctor<float, 2, 2, 0>, LerpFunctor"), 12);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, every == 1 ? 2 : 4, every == 1 ? "an average of weights" : "an average of weights every third step");
}

static void slow_weights(void)
{
	/* Every third step the slow weights are moved as well, right behind the optimizer. */
	struct play *play = begin(true, true);
	for (int step = 0; step < 24; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		foreach_adamw(play);
		if (step % 3 == 2)
			launch(play, FOREACH("BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus"), 12);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 4, "slow weights every third step");
}

/* Nothing is known of the optimizer, and every micro-batch's loss is read: the turns between them are no iterations. */
static void losses_read(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 10; step++) {
		begin_iteration(play);
		for (int i = 0; i < 8; i++) {
			copy(play, TPCK_OP_H2D, 65536);
			forward(play, 3, 32);
			launch_on(play, 1, "loss_backward", 1);
			backward(play, 1, 3, 32);
			copy(play, TPCK_OP_D2H, 4);
		}
		launch(play, "step_all", 1000);
		end_iteration(play);
	}
	finish(play, 99, "every micro-batch's loss is read, the optimizer unknown");
}

/* The same with a read-back behind the optimizer only. */
static void no_name_no_run(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 12; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_H2D, 65536);
		forward(play, 3, 32);
		launch_on(play, 1, "loss_backward", 1);
		backward(play, 1, 3, 32);
		for (uint32_t i = 0; i < 6; i++) {
			launch(play, "dot_kernel", 10);
			launch(play, POINTWISE("CUDAFunctor_add<float>"), 1 + i % 4);
		}
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 2, "tensors moved one by one, without a name or a run");
}

/* The backward pass steps every parameter when its gradient is there. */
static void in_hooks(bool read_loss)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 12; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_H2D, 4096);
		forward(play, 3, 32);
		launch_on(play, 1, "loss_backward", 1);
		for (uint32_t i = 0; i < 7; i++) {
			launch_on(play, 1, "gemm_kernel", 9 + i);
			launch_on(play, 1, "adamw_kernel", 1 + i % 3);
		}
		end_iteration(play);
		if (read_loss)
			copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 2, read_loss ? "the optimizer in hooks of the backward pass" : "the same, no loss read");
}

/* Gradients are computed, measured and read, never applied. */
static void gradients_only(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		copy(play, TPCK_OP_H2D, 4096);
		forward(play, 3, 32);
		launch_on(play, 1, "loss_backward", 1);
		backward(play, 1, 3, 32);
		for (uint32_t i = 0; i < 6; i++)
			launch(play, POINTWISE("AbsFunctor<float>"), 1 + i);
		launch(play, POINTWISE("CUDAFunctor_add<float>"), 1);
		launch(play, FOREACH("BinaryOpScalarTensorFunctor<float, 1, 1, 0>, std::multiplies"), 10);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 0, "gradients that nobody applies");
}

/* Lists of tensors are averaged and scaled, in a process that does not train. */
static void averaging(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		foreach_adamw(play);
		launch(play, POINTWISE("addcdiv_cuda_kernel"), 20);
		copy(play, TPCK_OP_H2D, 4096);
		forward(play, 3, 32);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 0, "models averaged by list kernels");
}

/* Before and behind every micro-batch stands what stands before and behind the optimizer. */
static void micro_batches_read(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		begin_iteration(play);
		for (int i = 0; i < 4; i++) {
			micro_batch(play, 1, 32);
			copy(play, TPCK_OP_D2H, 4);
		}
		update(play, "adamw_kernel", 20);
		end_iteration(play);
	}
	finish(play, 2, "every micro-batch's loss is read");
}

/* Single precision parameters are stepped and copied to the half precision ones. */
static void copied_back(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		foreach_adamw(play);
		for (uint32_t i = 0; i < 8; i++)
			launch(play, POINTWISE("converting_copy_kernel_cuda"), 1 + i % 3);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 3, "parameters copied behind the optimizer");
}

/* Two networks of one shape get one batch: the second has no copy of its own. */
static void equal_networks(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 14; step++) {
		begin_iteration(play);
		copy(play, TPCK_OP_H2D, 4096);
		forward(play, 3, 32);
		backward(play, 1, 3, 32);
		foreach_adamw(play);
		forward(play, 3, 32);
		forward(play, 3, 32);
		backward(play, 1, 3, 32);
		foreach_adamw(play);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 3, "two equal networks, one batch");
}

/* More is trained from some step on: the forward pass betrays it before the optimizer does. */
static void more_parameters(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 20; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		if (step >= 10)
			launch_on(play, 1, "head_grad_kernel", 3);
		foreach_adamw(play);
		if (step == 10)
			copy(play, TPCK_OP_MEMSET, 40);
		if (step >= 10)
			foreach_adamw(play);
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 99, "a group of parameters is added");
}

/* The optimizer does more from the sixth step on (RAdam), tensor by tensor, without a name. */
static void longer_turn(bool names)
{
	struct play *play = begin(names, true);
	for (int step = 0; step < 20; step++) {
		begin_iteration(play);
		micro_batch(play, 1, 32);
		for (uint32_t i = 0; i < 8; i++) {
			launch(play, POINTWISE("MulFunctor<float>"), 1 + i % 5);
			launch(play, POINTWISE("CUDAFunctor_add<float>"), 1 + i % 5);
			if (step >= 6)
				launch(play, POINTWISE("sqrt_kernel_cuda"), 1 + i % 5);
		}
		end_iteration(play);
		copy(play, TPCK_OP_D2H, 4);
	}
	finish(play, 99, "an optimizer that does more from some step on");
}

static void begins_are_told(void)
{
	struct play *play = begin(true, true);
	for (int step = 0; step < 10; step++) {
		micro_batch(play, 0, 32);
		update(play, "adamw_kernel", 20);
		copy(play, TPCK_OP_D2H, 4);
	}
	struct tpck_infer_summary summary;
	tpck_infer_summary(play->infer, &summary);
	ok(play->begins == 8, "the optimizer's beginning is told once a phase: %d", play->begins);
	ok(summary.sure && summary.optimizer_ops == 20 && summary.iterations == 9 && summary.confidence > 0.8,
	   "the summary: %u launches, %" PRIu64 " iterations, period %" PRIu64 ", %s", summary.optimizer_ops, summary.iterations,
	   summary.period, summary.reason);
	ok(summary.witnesses == (TPCK_W_NAMES | TPCK_W_PATTERN), "both witnesses stand behind it");
	verdicts.count = 0;
	tpck_infer_free(play->infer);
	free(play);
}

/* Whatever happens between two phases, in a process that is settled: with many kinds of it in turn and mixed. */
static void odd_iteration(struct play *play, int kind)
{
	copy(play, TPCK_OP_H2D, kind == 1 ? 8 : 4096);
	forward(play, 3, kind == 2 ? 8 + chance(play, 50) : 32);
	backward(play, kind == 3 ? 4 : kind == 6 ? 0 : 1, 3, 32);
	if (kind == 4 || chance(play, 10) == 0)
		feed(play, (struct tpck_token){.bytes = 512, .op = chance(play, 2) ? TPCK_OP_H2D : TPCK_OP_D2H, .thread = 7});
	if (kind == 5)
		launch(play, FOREACH("UnaryOpFunctor<float, 2, 1, 1>, CopyFunctor"), 8);
	if (kind == 6) {
		copy(play, TPCK_OP_H2D, 4);
		launch(play, FOREACH("UnaryOpFunctor<float, 2, 1, 1>, CopyFunctor"), 8);
	}
	copy(play, TPCK_OP_D2H, 4);
	if (kind == 7 && chance(play, 2))
		return; /* the step is skipped */
	update(play, kind == 8 ? "sgd_momentum_update" : "adamw_kernel", kind == 9 ? 22 : 20);
	if (kind == 1 || kind == 5) {
		copy(play, TPCK_OP_H2D, 4);
		launch(play, FOREACH("UnaryOpFunctor<float, 2, 1, 1>, CopyFunctor"), 8);
	}
	if (kind == 10)
		feed(play, (struct tpck_token){.func = 77, .grid = {90, 0, 0}, .op = TPCK_OP_GRAPH});
	if (kind == 11)
		copy(play, chance(play, 2) ? TPCK_OP_D2D : TPCK_OP_MEMSET, 64);
	if (kind > 8 && chance(play, 3))
		copy(play, TPCK_OP_D2H, 4);
}

static void short_way(bool names, bool pattern)
{
	struct tpck_infer_options options = {names, pattern, true};
	struct tpck_infer_summary summary, other;
	struct play *play = begin(names, pattern);
	double part;
	play->long_way = tpck_infer_new(&options);
	for (int step = 0; step < 4000; step++)
		odd_iteration(play, step % 400 < 300 || chance(play, 3) ? 0 : (step / 400 + (int)chance(play, 3)) % 12);
	tpck_infer_summary(play->infer, &summary);
	tpck_infer_summary(play->long_way, &other);
	part = (double)summary.short_ops / (double)summary.ops;
	ok(play->differ == 0 && other.short_ops == 0 && summary.iterations == other.iterations && summary.period == other.period &&
		   summary.sure_since == other.sure_since && summary.optimizer_ops == other.optimizer_ops &&
		   strcmp(summary.reason, other.reason) == 0,
	   "the short way says what the long one says: %d differ, %" PRIu64 " and %" PRIu64 " iterations", play->differ,
	   summary.iterations, other.iterations);
	ok(names ? part > 0.3 : part == 0, "%.0f%% of the operations went it", part * 100);
	tpck_infer_free(play->long_way);
	tpck_infer_free(play->infer);
	free(play);
	verdicts.count = 0;
}

static void names(void)
{
	static const struct {
		const char *name;
		uint32_t bytes;
		enum tpck_role role;
		bool layout;
	} rows[] = {
		{NULL, 0, TPCK_ROLE_UNKNOWN, false},
		{"adamw_kernel", 0, TPCK_ROLE_OPTIMIZER, false},
		{"_Z13adamw_kernel3PfS_S_", 80, TPCK_ROLE_OPTIMIZER, false},
		{"void adamw_kernel3<float, __nv_bfloat16>(float*, float*)", 0, TPCK_ROLE_OPTIMIZER, false},
		{"_Z21kOptimizer32bit2StateIfLi0EEvPT_S1_PfS2_S2_ffffffffiffbi", 92, TPCK_ROLE_OPTIMIZER, true},
		{"_Z31kPreconditionOptimizer32bit2StateIfLi0EEvPT_", 72, TPCK_ROLE_NEUTRAL, false},
		{"void lambda_kernel(float*)", 0, TPCK_ROLE_OTHER, false},
		{"void million_kernel(float*)", 0, TPCK_ROLE_OTHER, false},
		{"void layernorm_kernel(sgd*)", 0, TPCK_ROLE_OTHER, false},
		{"split_embedding_backward_codegen_rowwise_adagrad_kernel_cta_per_row_1", 0, TPCK_ROLE_OTHER, false},
		{"lamb_cuda_kernel_part2", 0, TPCK_ROLE_OPTIMIZER, false},
		{"void (anonymous namespace)::myAdamStep<float>(float*)", 0, TPCK_ROLE_OPTIMIZER, false},
		{"_ZN2at6native52_GLOBAL__N__1f580294_19_fused_adamw_impl_cu_8b44fa2325multi_tensor_apply_kernelINS1_"
		 "32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbS9_S9_"
		 "EEEvT_T0_DpT1_",
		 25624, TPCK_ROLE_OPTIMIZER, true},
		{"_ZN2at6native52_GLOBAL__N__1f580294_19_fused_adamw_impl_cu_8b44fa2325multi_tensor_apply_kernelINS1_"
		 "32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbS9_S9_"
		 "EEEvT_T0_DpT1_",
		 12345, TPCK_ROLE_OPTIMIZER, false},
		{"_ZN2at6native46_GLOBAL__N__3be26839_13_AmpKernels_cu_3810c27325multi_tensor_apply_kernelINS1_"
		 "18TensorListMetadataILi1EEENS1_14UnaryOpFunctorIfLi1ELi1ELi0EEEJZZZNS0_47_amp_foreach_non_finite_check_and_unscale_"
		 "cuda_EN3c108ArrayRefINS_6TensorEEERS9_RKS9_ENKUlvE_clEvENKUlvE0_clEvEUlfE_EEEvT_T0_DpT1_",
		 25800, TPCK_ROLE_NEUTRAL, false},
		{"_Z25multi_tensor_apply_kernelI18TensorListMetadataILi4ELb0EEN18transformer_engine17multi_tensor_adam11AdamFunctorI13"
		 "__nv_bfloat16S5_ffiEEJffffffNS3_10adamMode_tEfEEvlPViT_T0_DpT1_",
		 3100, TPCK_ROLE_OPTIMIZER, true},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct tpck_named_kernel kernel = tpck_name_kernel(rows[i].name, rows[i].bytes);
		ok(kernel.role == rows[i].role && kernel.layout_known == rows[i].layout, "role %d, layout %s: %.60s", kernel.role,
		   kernel.layout_known ? "known" : "unknown", rows[i].name ? rows[i].name : "no name");
	}
}

static void both_off(void)
{
	struct play *play = begin(false, false);
	for (int step = 0; step < 10; step++) {
		micro_batch(play, 0, 32);
		update(play, "adamw_kernel", 20);
	}
	finish(play, 0, "both witnesses off");
}

int main(void)
{
	for (int n = 0; n < 2; n++) {
		bool by_name = n == 0;
		accumulation(by_name, 1, true);
		accumulation(by_name, 1, false);
		accumulation(by_name, 2, true);
		accumulation(by_name, 5, true);
		changing_lengths(by_name);
		evaluation(by_name);
		alternation(by_name, false);
		alternation(by_name, true);
		batches_in_turn(by_name);
		several_steps_of_one(by_name);
		skipped_steps(by_name);
		clipping(by_name);
		two_threads(by_name);
		inference(by_name, 1);
		inference(by_name, 24);
		noise(by_name);
	}
	unscaling();
	cleared_at_once();
	graphs(true);
	graphs(false);
	inference_graph();
	first_step_differs();
	trailing_arithmetic();
	one_change();
	partly_known(4);
	partly_known(1);
	partly_known_resident();
	known_last();
	averaged_sgd();
	weight_average(1);
	weight_average(3);
	slow_weights();
	losses_read();
	no_name_no_run();
	in_hooks(true);
	in_hooks(false);
	gradients_only();
	averaging();
	micro_batches_read();
	copied_back();
	equal_networks();
	more_parameters();
	longer_turn(true);
	longer_turn(false);
	begins_are_told();
	short_way(true, true);
	short_way(true, false);
	short_way(false, true);
	both_off();
	names();
	printf("1..%d\n", tests);
	return failures ? 1 : 0;
}
