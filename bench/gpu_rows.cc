#include "bench/gpu_rows.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "bench/gpu.h"
#include "bench/gpu_measure.h"
#include "kernels/activation.h"
#include "kernels/channel_norm.h"
#include "kernels/copy.h"
#include "kernels/heads.h"
#include "kernels/modulated_norm.h"
#include "kernels/upsample.h"

namespace segue::bench {
namespace {

constexpr int64_t kElement = 2;  // bytes of a bfloat16
constexpr int64_t kRotatingBytes = int64_t{300} << 20;
constexpr double kGiga = 1e9;

Error CaseError(const Case& one, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "read benchmark suite",
          .argument = "case " + one.name,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

struct Shape {
  int64_t rows[2] = {};  // image, text
  int64_t width = 0;
  int64_t head_dim = 0;  // heads only
  kernels::Rounding rounding = kernels::Rounding::kBF16;
};

Result<Shape> ReadShape(const Case& one) {
  Shape shape;
  SEGUE_ASSIGN_OR_RETURN(shape.rows[0], one.Integer("image"));
  SEGUE_ASSIGN_OR_RETURN(shape.rows[1], one.Integer("text"));
  if (one.values.contains("heads")) {
    SEGUE_ASSIGN_OR_RETURN(const int64_t heads, one.Integer("heads"));
    SEGUE_ASSIGN_OR_RETURN(shape.head_dim, one.Integer("head_dim"));
    shape.width = heads * shape.head_dim;
  } else {
    SEGUE_ASSIGN_OR_RETURN(shape.width, one.Integer("width"));
  }
  const std::string rounding = one.Text("rounding", "bf16");
  if (rounding != "bf16" && rounding != "none") {
    return CaseError(one, "rounding=" + rounding, "bf16 or none");
  }
  if (rounding == "none") shape.rounding = kernels::Rounding::kNone;
  if (shape.rows[0] < 1 || shape.rows[1] < 0 || shape.width < 1) {
    return CaseError(one, "no rows or no columns", "image=<rows> text=<rows> width=<columns>");
  }
  return shape;
}

using Buffers = std::vector<GpuBuffer>;

// What is measured: buffers that a call reads or writes, of which there are several sets, and the
// call.
struct Operation {
  std::vector<int64_t> elements;  // bfloat16, of each buffer
  int64_t moved = 0;              // elements read and written by a call
  std::function<Status(const Buffers&, const kernels::Context&)> enqueue;
};

MatrixView View(const GpuBuffer& buffer, int64_t rows, int64_t cols) {
  return ContiguousMatrix(buffer.data(), DType::kBF16, rows, cols);
}

// Memory that every call reads and that stays in the caches: tables, weights, indices.
class Constants {
 public:
  Result<const void*> Normal(int64_t count, const GpuStream& stream) {
    SEGUE_ASSIGN_OR_RETURN(GpuBuffer buffer, GpuBuffer::Allocate(count * kElement));
    SEGUE_RETURN_IF_ERROR(FillNormal(buffer.data(), count, 77 + buffers_.size(), stream));
    return Keep(std::move(buffer));
  }
  template <typename T>
  Result<const T*> Copy(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    SEGUE_ASSIGN_OR_RETURN(GpuBuffer buffer, GpuBuffer::Allocate(bytes));
    SEGUE_RETURN_IF_ERROR(Upload(buffer.data(), values.data(), bytes));
    return static_cast<const T*>(Keep(std::move(buffer)));
  }

 private:
  const void* Keep(GpuBuffer buffer) {
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }
  Buffers buffers_;
};

// Buffers of a set: h, branch and y of the image, then of the text. One request modulates all rows.
Result<Operation> ModulatedNorm(const Shape& shape, bool gated, const GpuStream& stream) {
  const auto constants = std::make_shared<Constants>();
  const int64_t rows = shape.rows[0] + shape.rows[1];
  SEGUE_ASSIGN_OR_RETURN(const void* table, constants->Normal(3 * shape.width, stream));
  SEGUE_ASSIGN_OR_RETURN(const int32_t* index, constants->Copy(std::vector<int32_t>(rows, 0)));
  Operation operation;
  for (const int64_t count : shape.rows) {
    operation.elements.insert(operation.elements.end(), 3, count * shape.width);
  }
  operation.moved = (gated ? 4 : 2) * rows * shape.width;
  operation.enqueue = [=](const Buffers& buffers, const kernels::Context& context) {
    const auto slice = [&](int64_t part) {
      return kernels::RowTable{.data = static_cast<const uint16_t*>(table) + part * shape.width,
                               .rows = 1,
                               .stride = 3 * shape.width,
                               .index = index};
    };
    std::vector<kernels::ModulatedNormStream> streams;
    for (size_t i = 0; i < 2; ++i) {
      const auto view = [&](size_t which) {
        return View(buffers[3 * i + which], shape.rows[i], shape.width);
      };
      kernels::ModulatedNormStream one = {
          .h = view(0), .scale = slice(0), .shift = slice(1), .y = view(2)};
      if (gated) {
        one.branch = view(1);
        one.gate = slice(2);
      }
      streams.push_back(one);
    }
    (void)constants;
    return kernels::ModulatedNorm({.streams = streams, .rounding = shape.rounding}, context);
  };
  return operation;
}

Result<Operation> GatedNorm(const Shape& shape, const GpuStream& stream) {
  return ModulatedNorm(shape, true, stream);
}
Result<Operation> UngatedNorm(const Shape& shape, const GpuStream& stream) {
  return ModulatedNorm(shape, false, stream);
}

// Buffers of a set: q | k | v of the image, then of the text. Row m has position m.
Result<Operation> Heads(const Shape& shape, const GpuStream& stream) {
  const auto constants = std::make_shared<Constants>();
  const int64_t rows = shape.rows[0] + shape.rows[1];
  std::vector<float> cos;
  std::vector<float> sin;
  std::vector<int32_t> position;
  for (int64_t row = 0; row < rows; ++row) {
    position.push_back(static_cast<int32_t>(row));
    for (int64_t k = 0; k < shape.head_dim / 2; ++k) {
      const double angle = static_cast<double>(row) * std::pow(10000.0, -2.0 * k / shape.head_dim);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  kernels::RopeTable rope = {.positions = rows};
  SEGUE_ASSIGN_OR_RETURN(rope.cos, constants->Copy(cos));
  SEGUE_ASSIGN_OR_RETURN(rope.sin, constants->Copy(sin));
  SEGUE_ASSIGN_OR_RETURN(const int32_t* positions, constants->Copy(position));
  SEGUE_ASSIGN_OR_RETURN(const void* weights, constants->Normal(shape.head_dim, stream));
  const WeightView weight = {.data = weights, .dtype = DType::kBF16, .shape = {shape.head_dim}};
  Operation operation;
  for (const int64_t count : shape.rows) operation.elements.push_back(count * 3 * shape.width);
  operation.moved = 4 * rows * shape.width;
  operation.enqueue = [=](const Buffers& buffers, const kernels::Context& context) {
    std::vector<kernels::HeadsStream> streams;
    for (size_t i = 0; i < 2; ++i) {
      const MatrixView fused = View(buffers[i], shape.rows[i], 3 * shape.width);
      streams.push_back({.q = fused.Cols(0, shape.width),
                         .k = fused.Cols(shape.width, shape.width),
                         .q_weight = weight,
                         .k_weight = weight,
                         .position = positions + (i == 0 ? 0 : shape.rows[0])});
    }
    (void)constants;
    return kernels::PrepareHeads({.streams = streams,
                                  .head_dim = static_cast<int32_t>(shape.head_dim),
                                  .rope = rope,
                                  .rounding = shape.rounding},
                                 context);
  };
  return operation;
}

// Buffers of a set: x and y of the image, then of the text.
Result<Operation> Gelu(const Shape& shape, const GpuStream&) {
  Operation operation;
  for (const int64_t count : shape.rows) {
    operation.elements.insert(operation.elements.end(), 2, count * shape.width);
  }
  operation.moved = 2 * (shape.rows[0] + shape.rows[1]) * shape.width;
  operation.enqueue = [=](const Buffers& buffers, const kernels::Context& context) {
    std::vector<kernels::ActivationParams> streams;
    streams.reserve(2);
    for (size_t i = 0; i < 2; ++i) {
      streams.push_back({.x = View(buffers[2 * i], shape.rows[i], shape.width),
                         .y = View(buffers[2 * i + 1], shape.rows[i], shape.width),
                         .activation = kernels::Activation::kGeluTanh,
                         .rounding = shape.rounding});
    }
    return kernels::ActivateStreams({.streams = streams}, context);
  };
  return operation;
}

// Buffers of a set: gate, up and y. The rows of both streams as one matrix.
Result<Operation> SiluMul(const Shape& shape, const GpuStream&) {
  const int64_t rows = shape.rows[0] + shape.rows[1];
  Operation operation;
  operation.elements.assign(3, rows * shape.width);
  operation.moved = 3 * rows * shape.width;
  operation.enqueue = [=](const Buffers& buffers, const kernels::Context& context) {
    return kernels::SiluMul({.gate = View(buffers[0], rows, shape.width),
                             .up = View(buffers[1], rows, shape.width),
                             .y = View(buffers[2], rows, shape.width),
                             .rounding = shape.rounding},
                            context);
  };
  return operation;
}

// Buffers of a set: the map and y; with `sum` what is added to the map, whose sum takes its place.
Result<Operation> ChannelNorm(const Shape& shape, bool sum, const GpuStream& stream) {
  const auto constants = std::make_shared<Constants>();
  const int64_t pixels = shape.rows[0] + shape.rows[1];
  SEGUE_ASSIGN_OR_RETURN(const void* gamma, constants->Normal(shape.width, stream));
  const WeightView weight = {.data = gamma, .dtype = DType::kBF16, .shape = {shape.width}};
  Operation operation;
  operation.elements.assign(sum ? 3 : 2, pixels * shape.width);
  operation.moved = (sum ? 4 : 2) * pixels * shape.width;
  operation.enqueue = [=](const Buffers& buffers, const kernels::Context& context) {
    kernels::ChannelNormParams params = {.x = View(buffers[0], pixels, shape.width),
                                         .gamma = weight,
                                         .y = View(buffers[1], pixels, shape.width),
                                         .silu = true,
                                         .rounding = shape.rounding};
    if (sum) {
      params.addend = View(buffers[2], pixels, shape.width);
      params.sum = params.x;
    }
    (void)constants;
    return kernels::ChannelNorm(params, context);
  };
  return operation;
}

Result<Operation> NormOfMap(const Shape& shape, const GpuStream& stream) {
  return ChannelNorm(shape, false, stream);
}
Result<Operation> NormOfSum(const Shape& shape, const GpuStream& stream) {
  return ChannelNorm(shape, true, stream);
}

// Buffers of a set: a square map, what is added to it, and the sum at twice its size.
Result<Operation> Upsample(const Shape& shape, const GpuStream&) {
  const int64_t pixels = shape.rows[0] + shape.rows[1];
  const int64_t side = std::llround(std::sqrt(static_cast<double>(pixels)));
  if (side * side != pixels) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "read benchmark suite",
                 .argument = "pixels of op=upsample",
                 .got = std::to_string(pixels),
                 .wanted = "a square number"};
  }
  Operation operation;
  operation.elements = {pixels * shape.width, pixels * shape.width, 4 * pixels * shape.width};
  operation.moved = 6 * pixels * shape.width;
  operation.enqueue = [=](const Buffers& buffers, const kernels::Context& context) {
    return kernels::Upsample({.x = View(buffers[0], pixels, shape.width),
                              .addend = View(buffers[1], pixels, shape.width),
                              .height = side,
                              .width = side,
                              .y = View(buffers[2], 4 * pixels, shape.width)},
                             context);
  };
  return operation;
}

using Maker = std::function<Result<Operation>(const Shape&, const GpuStream&)>;

// Errors: no such operation, or not with what the case gives.
Result<Maker> FindMaker(const Case& one, const Shape& shape) {
  static const std::map<std::string, Maker> makers = {{"modulated_norm", GatedNorm},
                                                      {"norm", UngatedNorm},
                                                      {"heads", Heads},
                                                      {"gelu", Gelu},
                                                      {"silu_mul", SiluMul},
                                                      {"channel_norm", NormOfMap},
                                                      {"channel_sum_norm", NormOfSum},
                                                      {"upsample", Upsample}};
  const std::string op = one.Text("op", "");
  const auto maker = makers.find(op);
  if (maker != makers.end() && (op == "heads") == (shape.head_dim > 0)) return maker->second;
  return CaseError(one, "op=" + op,
                   "modulated_norm, norm, gelu, silu_mul, channel_norm, channel_sum_norm or "
                   "upsample with a width; heads with heads and head_dim");
}

// The same contents for the same seed.
Result<Buffers> MakeSet(const Operation& operation, uint64_t seed, const GpuStream& stream) {
  Buffers set;
  for (size_t i = 0; i < operation.elements.size(); ++i) {
    SEGUE_ASSIGN_OR_RETURN(GpuBuffer buffer, GpuBuffer::Allocate(operation.elements[i] * kElement));
    SEGUE_RETURN_IF_ERROR(FillNormal(buffer.data(), operation.elements[i], seed + i, stream));
    set.push_back(std::move(buffer));
  }
  return set;
}

// Runs the fast kernel and the plain ones on the same contents. Errors: other bytes.
Status RequirePlainBytes(const Operation& operation, const std::string& name,
                         const GpuStream& stream) {
  std::vector<std::vector<uint16_t>> results[2];
  for (const bool reference : {false, true}) {
    SEGUE_ASSIGN_OR_RETURN(const Buffers set, MakeSet(operation, 6000, stream));
    SEGUE_RETURN_IF_ERROR(operation.enqueue(
        set, {.stream = Stream::Cuda(stream.get()), .reference_only = reference}));
    SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
    for (const GpuBuffer& buffer : set) {
      std::vector<uint16_t> values(static_cast<size_t>(buffer.bytes() / kElement));
      SEGUE_RETURN_IF_ERROR(Download(values.data(), buffer.data(), buffer.bytes()));
      results[reference ? 1 : 0].push_back(std::move(values));
    }
  }
  if (results[0] == results[1]) return {};
  return Error{.code = ErrorCode::kInternal,
               .operation = "verify row kernels",
               .argument = "case " + name,
               .got = "bytes that differ from the plain kernels'",
               .wanted = "the same bytes"};
}

}  // namespace

Result<std::vector<Row>> BenchGpuRows(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const Shape shape, ReadShape(one));
  SEGUE_ASSIGN_OR_RETURN(const Maker make, FindMaker(one, shape));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(const Operation operation, make(shape, stream));
  SEGUE_RETURN_IF_ERROR(RequirePlainBytes(operation, one.name, stream));

  const int64_t moved_bytes = operation.moved * kElement;
  const int64_t rotation = kRotatingBytes / moved_bytes + 1;
  std::vector<Buffers> sets;
  std::vector<Buffers> copies;  // from and to
  for (int64_t i = 0; i < rotation; ++i) {
    SEGUE_ASSIGN_OR_RETURN(Buffers set,
                           MakeSet(operation, 7000 + 10 * static_cast<uint64_t>(i), stream));
    sets.push_back(std::move(set));
    const Operation copy = {.elements = {operation.moved / 2, operation.moved / 2}};
    SEGUE_ASSIGN_OR_RETURN(Buffers pair,
                           MakeSet(copy, 8000 + 10 * static_cast<uint64_t>(i), stream));
    copies.push_back(std::move(pair));
  }
  const GpuContender ours = {.name = "segue",
                             .version = "",
                             .rotation = rotation,
                             .enqueue = [&](void* cuda_stream, int64_t call) {
                               return operation.enqueue(sets[call],
                                                        {.stream = Stream::Cuda(cuda_stream)});
                             }};
  const GpuContender copy = {.name = "16-byte copy",
                             .version = "",
                             .rotation = rotation,
                             .enqueue = [&](void* cuda_stream, int64_t call) {
                               return kernels::CopyBytes({.from = copies[call][0].data(),
                                                          .to = copies[call][1].data(),
                                                          .bytes = moved_bytes / 2},
                                                         {.stream = Stream::Cuda(cuda_stream)});
                             }};
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram our_program, Record(ours, stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram copy_program, Record(copy, stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuComparison comparison,
                         MeasureOnGpu(our_program, &copy_program, options.measure, stream));
  return RowsOf(
      comparison, static_cast<double>(moved_bytes), kGiga,
      {.case_name = one.name, .variant = one.Text("op", ""), .unit = "GB/s", .peer = copy.name});
}

}  // namespace segue::bench
