/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of copies. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/cuda_graph.h"
#include "runtime/files/files.h"

enum direction { TO_DEVICE, TO_HOST, ON_DEVICE, ON_HOST };

/* Which memory a unified address is in; what the driver does not know is the host's. */
static bool on_device(CUdeviceptr address)
{
	CUmemorytype type = CU_MEMORYTYPE_HOST;

	if (tpck_engine_is_device_memory(address))
		return true;
	return TPCK_CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_DEVICE;
}

static enum direction direction_of(CUdeviceptr dst, CUdeviceptr src)
{
	bool to = on_device(dst), from = on_device(src);

	return to ? (from ? ON_DEVICE : TO_DEVICE) : from ? TO_HOST : ON_HOST;
}

/* One copy; `real` makes the real call with the caller's own arguments. */
struct copy {
	enum direction direction;
	CUdeviceptr dst, src;
	size_t bytes;
	CUstream stream;
	bool queued;
};

static void copy_call(struct tpck_call *call, const struct copy *copy)
{
	static const enum tpck_op ops[] = {TPCK_OP_H2D, TPCK_OP_D2H, TPCK_OP_D2D, TPCK_OP_D2D};

	*call = (struct tpck_call){.stream = copy->stream};
	call->token.op = ops[copy->direction];
	call->token.bytes = copy->bytes;
	if (copy->direction == TO_DEVICE || copy->direction == ON_DEVICE)
		call->places[0] = copy->dst;
	if (copy->direction == TO_HOST || copy->direction == ON_DEVICE)
		call->places[1] = copy->src;
	if (copy->direction == TO_DEVICE && copy->bytes)
		call->content = (const void *)copy->src;
}

static enum tpck_go copy_begin(struct tpck_thread *self, const struct copy *copy, struct tpck_call *call)
{
	enum tpck_go go;

	tpck_cuda_context_seen();
	copy_call(call, copy);
	tpck_cuda_graph_node(call);
	go = tpck_engine_before(self, call);
	if (go == TPCK_GO_ANSWERED && copy->direction == TO_HOST)
		tpck_engine_deliver(self, (void *)copy->dst, copy->bytes);
	if (go == TPCK_GO_ANSWERED && copy->direction == ON_HOST)
		go = TPCK_GO_RUN; /* the CPU's own bytes */
	return go;
}

/* A file that is written from there is a checkpoint. */
static void note_target(const struct copy *copy)
{
	if (copy->direction == TO_HOST && copy->bytes >= TPCK_FILES_MUCH)
		tpck_files_target((const void *)copy->dst, copy->bytes);
}

static void copy_end(struct tpck_thread *self, const struct copy *copy, struct tpck_call *call, CUresult result)
{
	tpck_cuda_note(result);
	if (result == CUDA_SUCCESS && copy->direction == TO_HOST)
		tpck_engine_read_back(self, call, (const void *)copy->dst, copy->src, copy->bytes, copy->queued);
	tpck_engine_after(self, call);
	if (copy->direction == TO_HOST && !copy->queued)
		tpck_engine_device_waited();
	tpck_engine_leave(self);
}

struct copying {
	struct tpck_thread *self; /* NULL: nothing is followed */
	struct copy copy;
	struct tpck_call call;
};

/* Around a real call: whether it is to be made. */
static bool begins(struct copying *copying, struct copy copy)
{
	copying->self = tpck_engine_enter();
	copying->copy = copy;
	note_target(&copying->copy);
	return !copying->self || copy_begin(copying->self, &copying->copy, &copying->call) == TPCK_GO_RUN;
}

static CUresult ends(struct copying *copying, CUresult result)
{
	if (copying->self)
		copy_end(copying->self, &copying->copy, &copying->call, result);
	return result;
}

#define ARGS(direction_, dst_, src_, bytes_, stream_, queued_) \
	((struct copy){direction_, (CUdeviceptr)(dst_), (CUdeviceptr)(src_), bytes_, stream_, queued_})

CUresult tpck_hook_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(TO_DEVICE, dstDevice, srcHost, ByteCount, NULL, false))
			? TPCK_CALL(cuMemcpyHtoD_v2, dstDevice, srcHost, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(TO_DEVICE, dstDevice, srcHost, ByteCount, CU_STREAM_PER_THREAD, false))
			? TPCK_CALL(cuMemcpyHtoD_v2_ptds, dstDevice, srcHost, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(TO_HOST, dstHost, srcDevice, ByteCount, NULL, false))
			? TPCK_CALL(cuMemcpyDtoH_v2, dstHost, srcDevice, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(TO_HOST, dstHost, srcDevice, ByteCount, CU_STREAM_PER_THREAD, false))
			? TPCK_CALL(cuMemcpyDtoH_v2_ptds, dstHost, srcDevice, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(ON_DEVICE, dstDevice, srcDevice, ByteCount, NULL, true))
			? TPCK_CALL(cuMemcpyDtoD_v2, dstDevice, srcDevice, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(ON_DEVICE, dstDevice, srcDevice, ByteCount, CU_STREAM_PER_THREAD, true))
			? TPCK_CALL(cuMemcpyDtoD_v2_ptds, dstDevice, srcDevice, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(TO_DEVICE, dstDevice, srcHost, ByteCount, hStream, true))
			? TPCK_CALL(cuMemcpyHtoDAsync_v2, dstDevice, srcHost, ByteCount, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
					     CUstream hStream)
{
	return tpck_hook_cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(TO_HOST, dstHost, srcDevice, ByteCount, hStream, true))
			? TPCK_CALL(cuMemcpyDtoHAsync_v2, dstHost, srcDevice, ByteCount, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return tpck_hook_cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
					CUstream hStream)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(ON_DEVICE, dstDevice, srcDevice, ByteCount, hStream, true))
			? TPCK_CALL(cuMemcpyDtoDAsync_v2, dstDevice, srcDevice, ByteCount, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
					     CUstream hStream)
{
	return tpck_hook_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(direction_of(dst, src), dst, src, ByteCount, NULL, false))
			? TPCK_CALL(cuMemcpy, dst, src, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(direction_of(dst, src), dst, src, ByteCount, CU_STREAM_PER_THREAD, false))
			? TPCK_CALL(cuMemcpy_ptds, dst, src, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(direction_of(dst, src), dst, src, ByteCount, hStream, true))
			? TPCK_CALL(cuMemcpyAsync, dst, src, ByteCount, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return tpck_hook_cuMemcpyAsync(dst, src, ByteCount, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
				CUcontext srcContext, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(ON_DEVICE, dstDevice, srcDevice, ByteCount, NULL, true))
			? TPCK_CALL(cuMemcpyPeer, dstDevice, dstContext, srcDevice, srcContext, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
				     CUcontext srcContext, size_t ByteCount)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(ON_DEVICE, dstDevice, srcDevice, ByteCount, CU_STREAM_PER_THREAD, true))
			? TPCK_CALL(cuMemcpyPeer_ptds, dstDevice, dstContext, srcDevice, srcContext, ByteCount) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
				     CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	struct copying copying;

	return ends(&copying, begins(&copying, ARGS(ON_DEVICE, dstDevice, srcDevice, ByteCount, hStream, true))
			? TPCK_CALL(cuMemcpyPeerAsync, dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
					  CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	return tpck_hook_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount,
					   tpck_per_thread(hStream));
}

/* ---- copies in two and three dimensions: uploads and copies on the device are followed; bytes that
 * come to the host in rows are not in the log yet ---- */

static struct copy block_copy(CUmemorytype to, CUmemorytype from, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
			      CUstream stream)
{
	bool to_device = to == CU_MEMORYTYPE_DEVICE || (to == CU_MEMORYTYPE_UNIFIED && on_device(dst)) ||
			 to == CU_MEMORYTYPE_ARRAY;
	bool from_device = from == CU_MEMORYTYPE_DEVICE || (from == CU_MEMORYTYPE_UNIFIED && on_device(src)) ||
			   from == CU_MEMORYTYPE_ARRAY;

	return ARGS(to_device ? ON_DEVICE : from_device ? TO_HOST : ON_HOST, dst, src, bytes, stream, true);
}

struct block {
	struct tpck_thread *self; /* NULL: nothing is followed */
	struct tpck_call call;
};

/* Around a real call: whether it is to be made. */
static bool block_begins(struct block *block, struct copy copy)
{
	block->self = tpck_engine_enter();
	note_target(&copy);
	if (!block->self)
		return true;
	if (copy.direction == TO_HOST)
		tpck_engine_unresumable("the program copies rows to the host (cuMemcpy2D or 3D)");
	tpck_cuda_context_seen();
	copy_call(&block->call, &copy);
	block->call.content = NULL;
	tpck_cuda_graph_node(&block->call);
	return tpck_engine_before(block->self, &block->call) == TPCK_GO_RUN || copy.direction == ON_HOST;
}

static CUresult block_ends(struct block *block, CUresult result)
{
	if (!block->self)
		return result;
	tpck_engine_after(block->self, &block->call);
	tpck_engine_leave(block->self);
	return result;
}

static struct copy copy_2d(const CUDA_MEMCPY2D *p, CUstream stream)
{
	if (!p)
		return ARGS(ON_HOST, 0, 0, 0, stream, true);
	return block_copy(p->dstMemoryType, p->srcMemoryType,
			  p->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)p->dstHost : p->dstDevice,
			  p->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)p->srcHost : p->srcDevice,
			  p->WidthInBytes * p->Height, stream);
}

static struct copy copy_3d(const CUDA_MEMCPY3D *p, CUstream stream)
{
	if (!p)
		return ARGS(ON_HOST, 0, 0, 0, stream, true);
	return block_copy(p->dstMemoryType, p->srcMemoryType,
			  p->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)p->dstHost : p->dstDevice,
			  p->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)p->srcHost : p->srcDevice,
			  p->WidthInBytes * p->Height * p->Depth, stream);
}

bool tpck_cuda_copies_to_host(const CUDA_MEMCPY3D *copy)
{
	return copy_3d(copy, NULL).direction == TO_HOST;
}

CUresult tpck_hook_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_2d(pCopy, NULL)) ? TPCK_CALL(cuMemcpy2D_v2, pCopy) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_2d(pCopy, CU_STREAM_PER_THREAD)) ? TPCK_CALL(cuMemcpy2D_v2_ptds, pCopy) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_2d(pCopy, NULL)) ? TPCK_CALL(cuMemcpy2DUnaligned_v2, pCopy) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_2d(pCopy, CU_STREAM_PER_THREAD))
			? TPCK_CALL(cuMemcpy2DUnaligned_v2_ptds, pCopy) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_2d(pCopy, hStream)) ? TPCK_CALL(cuMemcpy2DAsync_v2, pCopy, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return tpck_hook_cuMemcpy2DAsync_v2(pCopy, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_3d(pCopy, NULL)) ? TPCK_CALL(cuMemcpy3D_v2, pCopy) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *pCopy)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_3d(pCopy, CU_STREAM_PER_THREAD)) ? TPCK_CALL(cuMemcpy3D_v2_ptds, pCopy) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	struct block block;

	return block_ends(&block, block_begins(&block, copy_3d(pCopy, hStream)) ? TPCK_CALL(cuMemcpy3DAsync_v2, pCopy, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return tpck_hook_cuMemcpy3DAsync_v2(pCopy, tpck_per_thread(hStream));
}
