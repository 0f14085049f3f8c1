/* SPDX-License-Identifier: Apache-2.0 */
/* Stands where capture, graphs and pools will be. */
#include "driver/sim.h"
CUresult sim_capture_unsafe(void) { return CUDA_SUCCESS; }
CUresult sim_capture_implicit(struct sim_stream *s) { (void)s; return CUDA_SUCCESS; }
CUresult sim_capture_add(struct sim_stream *s, struct sim_work *w, struct sim_node **out) { (void)s, (void)w, (void)out; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult sim_capture_record(struct sim_stream *s, struct sim_event *e) { (void)s, (void)e; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult sim_capture_wait(struct sim_stream *s, struct sim_event *e) { (void)s, (void)e; return CUDA_ERROR_NOT_SUPPORTED; }
void sim_capture_invalidate(struct sim_capture *c) { (void)c; }
void sim_capture_unref(struct sim_capture *c) { (void)c; }
struct sim_graph *sim_graph_clone(const struct sim_graph *g) { (void)g; return NULL; }
void sim_graph_free(struct sim_graph *g) { (void)g; }

