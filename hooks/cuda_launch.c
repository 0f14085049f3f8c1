/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of launches: kernels, host functions, graphs. */
#include "config.h"

#include <string.h>

#include "hooks/cuda_driver.h"
#include "hooks/cuda_graph.h"
#include "runtime/track/functions.h"
#include "runtime/track/host_memory.h"
#include "runtime/track/mappings.h"

/* The buffer that a launch's parameters are in where they are in one, else NULL. */
static const char *packed(void **params, void **extra)
{
	const char *buffer = NULL;

	for (; !params && extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
	return buffer;
}

/* Memory of the host's that this kernel may write to is watched from here on: there may be a word in its parameters that is an address of it. */
static __attribute__((noinline)) void look_for_host_memory(const struct tpck_function *known, void **params, void **extra)
{
	const char *buffer = packed(params, extra);

	for (uint32_t i = 0; i < known->word_count && (params || buffer); i++) {
		const struct tpck_word *word = &known->words[i];
		uint64_t value;

		memcpy(&value, params ? (const char *)params[word->index] + word->within : buffer + word->offset, sizeof value);
		if (__builtin_expect(tpck_host_memory_maybe(value), 0))
			tpck_engine_host_memory_launched(value);
	}
}

static inline uint64_t mixed(uint64_t h, uint64_t value)
{
	h = (h ^ value) * 0xff51afd7ed558ccdull;
	return h ^ h >> 32;
}

/* Digests of the numbers and of the device's addresses among a launch's parameters; 0: there are none. What may be a host's address is left out, as
 * these need not come again. */
static __attribute__((noinline)) void parameters_digest(const struct tpck_function *known, void **params, void **extra, struct tpck_call *call)
{
	const char *buffer = packed(params, extra);
	uint64_t numbers = 0, addresses = 0;

	if (!params && !buffer)
		return;
	for (uint32_t i = 0; i < known->number_count; i++) {
		const struct tpck_number *number = &known->numbers[i];
		const void *at = params ? (const char *)params[number->index] + number->within : buffer + number->offset;
		uint64_t value = 0;

		/* Of a size that is known: a call of memcpy() costs more than all the rest. */
		switch (number->bytes) {
		case 4:
			memcpy(&value, at, 4);
			break;
		case 8:
			memcpy(&value, at, 8);
			break;
		case 2:
			memcpy(&value, at, 2);
			break;
		default:
			memcpy(&value, at, 1);
			break;
		}
		if (number->means && (number->means == TPCK_MEANS_ADDRESS || (value >> 32 && !(value >> 47)))) {
			if (tpck_engine_is_device_memory(value) || tpck_mappings_range(value))
				addresses = (addresses << 23 | addresses >> 41) ^ value;
			continue;
		}
		numbers = mixed(numbers, value);
	}
	call->numbers = numbers;
	call->addresses = addresses;
}

/* For who asks how much of the launches is compared. */
static __attribute__((noinline, cold)) void first_launch(struct tpck_function *known)
{
	if (!atomic_exchange_explicit(&known->launched, true, memory_order_relaxed))
		tpck_engine_kernel(known->undescribed, known->described, known->compared);
}

/* Every member is written, and nothing is written twice: this is in the way of every launch. */
static inline __attribute__((always_inline)) void kernel_call(struct tpck_call *call, CUfunction function, unsigned gx, unsigned gy, unsigned gz,
							      unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	static const struct tpck_function nothing;
	struct tpck_function *found = tpck_functions_find(function);
	const struct tpck_function *known;

	if (__builtin_expect(!found, 0)) {
		tpck_cuda_function_learn(function);
		found = tpck_functions_find(function);
	}
	known = found ? found : &nothing;
	if (__builtin_expect(found && !atomic_load_explicit(&found->launched, memory_order_relaxed), 0))
		first_launch(found);
	call->token.func = known->id;
	call->token.name = known->name;
	call->token.memo = found ? &found->memo : NULL;
	call->token.grid[0] = gx;
	call->token.grid[1] = gy;
	call->token.grid[2] = gz;
	call->token.block[0] = bx;
	call->token.block[1] = by;
	call->token.block[2] = bz;
	call->token.smem = shared;
	call->token.param_bytes = known->parameters;
	call->token.bytes = 0;
	call->token.op = TPCK_OP_KERNEL;
	call->stream = stream;
	call->content = NULL;
	call->places[0] = call->places[1] = 0;
	call->numbers = call->addresses = 0;
	if (known->number_count)
		parameters_digest(known, params, extra, call);
	call->orders = false;
	if (__builtin_expect(known->word_count && tpck_host_memory_any(), 0))
		look_for_host_memory(known, params, extra);
}

void tpck_cuda_node_call(struct tpck_call *call, const CUDA_KERNEL_NODE_PARAMS *node)
{
	kernel_call(call, node->func ? node->func : (CUfunction)node->kern, node->gridDimX, node->gridDimY, node->gridDimZ, node->blockDimX, node->blockDimY, node->blockDimZ,
		    node->sharedMemBytes, NULL, node->kernelParams, node->extra);
}

/* Whether the real call is to be made; where the engine asks for it, what the optimizer's launch names is noted. */
static inline bool goes(struct tpck_thread *self, struct tpck_call *call, CUfunction function, void **params)
{
	enum tpck_go go = tpck_engine_before(self, call);
	const struct tpck_function *known;

	if (__builtin_expect(go == TPCK_GO_RUN, 1))
		return true;
	if (go != TPCK_GO_READ)
		return false;
	known = tpck_functions_find(function);
	tpck_engine_parameters(call, known ? known->layout : NULL, params);
	return true;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		       unsigned shared, CUstream stream, void **params, void **extra)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;
	struct tpck_call call;

	if (!self)
		return TPCK_CALL(cuLaunchKernel, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
	tpck_cuda_context_seen();
	kernel_call(&call, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
	tpck_cuda_graph_node(&call);
	if (goes(self, &call, f, params))
		result = TPCK_CALL(cuLaunchKernel, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
	tpck_cuda_note(result);
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
				  unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
				  unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
	return launch(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
		      kernelParams, extra);
}

CUresult tpck_hook_cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
				       unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
				       unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
				       void **kernelParams, void **extra)
{
	return launch(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
		      tpck_per_thread(hStream), kernelParams, extra);
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;
	struct tpck_call call;

	if (!self || !config) {
		if (self)
			tpck_engine_leave(self);
		return TPCK_CALL(cuLaunchKernelEx, config, f, params, extra);
	}
	tpck_cuda_context_seen();
	kernel_call(&call, f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
		    config->blockDimZ, config->sharedMemBytes, config->hStream, params, extra);
	tpck_cuda_graph_node(&call);
	if (goes(self, &call, f, params))
		result = TPCK_CALL(cuLaunchKernelEx, config, f, params, extra);
	tpck_cuda_note(result);
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	return launch_ex(config, f, kernelParams, extra);
}

CUresult tpck_hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	CUlaunchConfig per_thread;

	if (!config || config->hStream)
		return launch_ex(config, f, kernelParams, extra);
	per_thread = *config;
	per_thread.hStream = CU_STREAM_PER_THREAD;
	return launch_ex(&per_thread, f, kernelParams, extra);
}

static CUresult launch_cooperative(CUfunction f, const unsigned grid[3], const unsigned block[3], unsigned shared,
				   CUstream stream, void **params)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;
	struct tpck_call call;

	if (!self)
		return TPCK_CALL(cuLaunchCooperativeKernel, f, grid[0], grid[1], grid[2], block[0], block[1], block[2],
				 shared, stream, params);
	tpck_cuda_context_seen();
	kernel_call(&call, f, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream, params, NULL);
	tpck_cuda_graph_node(&call);
	if (goes(self, &call, f, params))
		result = TPCK_CALL(cuLaunchCooperativeKernel, f, grid[0], grid[1], grid[2], block[0], block[1],
				   block[2], shared, stream, params);
	tpck_cuda_note(result);
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
					     unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
					     unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
					     void **kernelParams)
{
	return launch_cooperative(f, (unsigned[]){gridDimX, gridDimY, gridDimZ},
				  (unsigned[]){blockDimX, blockDimY, blockDimZ}, sharedMemBytes, hStream, kernelParams);
}

CUresult tpck_hook_cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
						  unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
						  unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
						  void **kernelParams)
{
	return launch_cooperative(f, (unsigned[]){gridDimX, gridDimY, gridDimZ},
				  (unsigned[]){blockDimX, blockDimY, blockDimZ}, sharedMemBytes,
				  tpck_per_thread(hStream), kernelParams);
}

/* Host functions run in every case: they are the CPU side's. While running forward the stream is
 * empty, so they run at once and in order. */
static void host_function(CUstream stream)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (!self)
		return;
	if (tpck_cuda_capturing() && tpck_cuda_device()->is_capturing(stream))
		tpck_engine_unresumable("a graph of the program calls host functions");
	tpck_engine_leave(self);
}

CUresult tpck_hook_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	CUresult result;

	host_function(hStream);
	result = TPCK_CALL(cuLaunchHostFunc, hStream, fn, userData);
	tpck_engine_queued();
	return result;
}

CUresult tpck_hook_cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
	CUresult result;

	host_function(tpck_per_thread(hStream));
	result = TPCK_CALL(cuLaunchHostFunc_ptsz, hStream, fn, userData);
	tpck_engine_queued();
	return result;
}

static CUresult graph_launch(CUgraphExec graph, CUstream stream)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_call call = {.stream = stream};
	struct tpck_communicator_calls *calls;
	CUresult result = CUDA_SUCCESS;
	enum tpck_go go;

	if (!self)
		return TPCK_CALL(cuGraphLaunch, graph, stream);
	tpck_cuda_context_seen();
	call.token.op = TPCK_OP_GRAPH;
	tpck_engine_graphs();
	calls = tpck_cuda_graph_token(graph, &call);
	go = tpck_engine_before(self, &call);
	if (go == TPCK_GO_RUN)
		result = TPCK_CALL(cuGraphLaunch, graph, stream);
	if (calls && (go == TPCK_GO_ANSWERED || call.gated))
		tpck_communicator_calls_count(calls);
	tpck_communicator_calls_drop(calls);
	tpck_cuda_note(result);
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	return graph_launch(hGraphExec, hStream);
}

CUresult tpck_hook_cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	return graph_launch(hGraphExec, tpck_per_thread(hStream));
}
