#include <cuda_runtime_api.h>

#include <string>
#include <utility>
#include <vector>

#include "device/cuda_check.h"
#include "device/gpu_graph.h"

namespace segue {
namespace {

constexpr const char* kCapture = "capture a graph";

void DestroyTemplate(void* graph) { cudaGraphDestroy(static_cast<cudaGraph_t>(graph)); }
using GraphTemplate = GpuHandle<DestroyTemplate>;

cudaStream_t StreamOf(const GpuStream& stream) { return static_cast<cudaStream_t>(stream.get()); }
cudaGraphExec_t ExecutableOf(void* executable) { return static_cast<cudaGraphExec_t>(executable); }

Result<GpuGraph::Nodes> CountNodes(cudaGraph_t graph) {
  size_t count = 0;
  SEGUE_RETURN_IF_ERROR(
      CheckCuda(kCapture, "cudaGraphGetNodes", cudaGraphGetNodes(graph, nullptr, &count)));
  std::vector<cudaGraphNode_t> list(count);
  if (count > 0) {
    SEGUE_RETURN_IF_ERROR(
        CheckCuda(kCapture, "cudaGraphGetNodes", cudaGraphGetNodes(graph, list.data(), &count)));
  }
  GpuGraph::Nodes nodes;
  for (cudaGraphNode_t node : list) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    SEGUE_RETURN_IF_ERROR(
        CheckCuda(kCapture, "cudaGraphNodeGetType", cudaGraphNodeGetType(node, &type)));
    int64_t& kind = type == cudaGraphNodeTypeKernel   ? nodes.kernels
                    : type == cudaGraphNodeTypeMemcpy ? nodes.copies
                    : type == cudaGraphNodeTypeMemset ? nodes.memsets
                                                      : nodes.others;
    ++kind;
  }
  return nodes;
}

// Ends the capture whatever happened in it. The first thing that went wrong is the reason.
Result<GraphTemplate> Record(const GpuStream& stream, const std::function<Status()>& enqueue,
                             cudaStreamCaptureMode mode) {
  SEGUE_RETURN_IF_ERROR(CheckCuda(kCapture, "cudaStreamBeginCapture",
                                  cudaStreamBeginCapture(StreamOf(stream), mode)));
  Status enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(StreamOf(stream), &graph);
  GraphTemplate owned(graph);
  if (!enqueued.ok()) {
    (void)cudaGetLastError();  // of a call that the capture refused, should one have been left
    return std::move(enqueued).error();
  }
  SEGUE_RETURN_IF_ERROR(CheckCuda(kCapture, "cudaStreamEndCapture", ended));
  return owned;
}

}  // namespace

void DestroyGpuGraph(void* executable) { cudaGraphExecDestroy(ExecutableOf(executable)); }

Result<GpuGraph> GpuGraph::Capture(const GpuStream& stream, const std::function<Status()>& enqueue,
                                   Mode mode) {
  SEGUE_ASSIGN_OR_RETURN(const GraphTemplate graph,
                         Record(stream, enqueue,
                                mode == Mode::kRelaxed ? cudaStreamCaptureModeRelaxed
                                                       : cudaStreamCaptureModeThreadLocal));
  SEGUE_ASSIGN_OR_RETURN(const Nodes nodes, CountNodes(static_cast<cudaGraph_t>(graph.get())));
  if (nodes.kernels + nodes.copies + nodes.memsets + nodes.others == 0) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = kCapture,
                 .argument = "work",
                 .got = "nothing on the stream",
                 .wanted = "at least one operation"};
  }
  cudaGraphExec_t executable = nullptr;
  SEGUE_RETURN_IF_ERROR(
      CheckCuda(kCapture, "cudaGraphInstantiate",
                cudaGraphInstantiate(&executable, static_cast<cudaGraph_t>(graph.get()), 0)));
  return GpuGraph(executable, nodes);
}

Status GpuGraph::Upload(const GpuStream& stream) const {
  return CheckCuda("upload a graph", "cudaGraphUpload",
                   cudaGraphUpload(ExecutableOf(handle_.get()), StreamOf(stream)));
}

Status GpuGraph::Launch(const GpuStream& stream) const {
  return CheckCuda("launch a graph", "cudaGraphLaunch",
                   cudaGraphLaunch(ExecutableOf(handle_.get()), StreamOf(stream)));
}

}  // namespace segue
