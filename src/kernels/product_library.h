// Products of linear layers on a GPU, by cuBLASLt: y = round(epilogue(scale x W^T + b)).
//
// Each weight has one bit class (ProductForm): a row's bytes do not depend on how many rows there
// are, on which algorithm was chosen for that number, or on whether choices were kept. The class is
// that of a reference algorithm, which follows from the form alone; another algorithm is used only
// after its output was compared with the reference's, byte by byte, on data that a different order
// of summation shows up in. Timing chooses among those.
//
// The library is loaded when first asked for (SEGUE_CUBLASLT names it, else libcublasLt.so.13 of
// the system), so that a program starts without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/span.h"
#include "device/device.h"
#include "device/stream.h"
#include "device/tensor_view.h"
#include "kernels/product_choice.h"
#include "segue/status.h"

namespace segue::kernels {

// Device memory, bases 16-byte aligned, strides multiples of 8 elements.
struct ProductParams {
  MatrixView x;               // [M, K] bfloat16; M may be 0
  WeightView weight;          // [N, K] bfloat16, or [K, N] where transposed_weight
  int64_t weight_stride = 0;  // elements from one stored row to the next; 0: contiguous
  bool transposed_weight = false;
  WeightView bias;  // [N] bfloat16 or absent
  MatrixView y;     // [M, N] bfloat16 or float32; overlaps none of the others
  float scale = 1.0f;
  int32_t k_splits = 1;  // the weight's class: one number for all its calls
  ProductEpilogue epilogue = ProductEpilogue::kNone;
};

// Thread-compatible: one call at a time. Products share the workspace, so all streams they are
// enqueued on must be ordered one after another.
class ProductLibrary {
 public:
  struct Settings {
    // Where choices are kept between processes; empty: nowhere.
    std::string cache_directory;
    // Device memory that outlives the library, 256-byte aligned. Without any, forms of one piece
    // still work, at times slower. 32 MiB is what cuBLASLt is made for on this architecture.
    void* workspace = nullptr;
    int64_t workspace_bytes = 0;
    // Where Warm takes its scratch memory from, which it gives back, unless it is given some, and
    // where PackedEqualsParts does; outlives the library. Null: those are refused.
    DeviceMemory* memory = nullptr;
    // How long Warm runs a shape whose calls are long (50 us and more): each candidate by itself
    // for some 0.3 s, at the clock that a chip at its power limit settles at for that one.
    double hot_seconds = 1.8;
  };

  // For the device that is current. Errors (kUnsupported): no CUDA in this build, no library, where
  // it was looked for; a device that it does not take.
  static Result<std::unique_ptr<ProductLibrary>> Create(const Settings& settings);
  ~ProductLibrary();
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;

  // Enqueues a product; may be captured. Runs the algorithm that Warm chose for that many rows or
  // the next larger number, else the class's reference. Errors: shapes that do not fit together,
  // alignment (kInvalidArgument); a form that the library has no algorithm for (kUnsupported).
  Status Multiply(const ProductParams& params, const Stream& stream);

  // Whether Multiply takes products of this form. Host only. Errors: of CheckProductForm; a form
  // that the library has no algorithm for (kUnsupported).
  Status Supports(const ProductForm& form);

  // Chooses algorithms for these shapes where none is chosen yet: loads kernels, allocates,
  // launches and waits: 30 ms a shape, hot_seconds where calls are long, 1 ms where the choice was
  // kept and only has to pass the comparison again. To be called where a step may take its time,
  // before a capture. Keeps what it chose in the cache; that this failed is no error
  // (cache_problem). Its scratch memory is one allocation of ScratchBytes from `scratch`, or from
  // the settings' memory where that is null.
  //
  // Errors: `stream` is capturing (kInvalidArgument); scratch memory (kOutOfMemory); a form without
  // an algorithm (kUnsupported). Products work afterwards as before.
  Status Warm(Span<const ProductShape> shapes, const Stream& stream,
              DeviceMemory* scratch = nullptr);
  // What Warm would take for these shapes; 0: all are chosen. Error (kInvalidArgument): a form that
  // is none.
  Result<int64_t> ScratchBytes(Span<const ProductShape> shapes) const;

  // Whether one product on a weight of parts, one below the other, gives every part's bytes: tried
  // on synthetic operands of this form, of which `part_n` are the rows of each part (form.n is
  // ignored). Waits. Errors: as of Warm.
  Result<bool> PackedEqualsParts(const ProductForm& form, Span<const int64_t> part_n,
                                 const Stream& stream);

  // What was chosen, for reports.
  struct Choice {
    ProductForm form;
    int64_t rows = 0;           // the bucket
    double microseconds = 0.0;  // of a call when it was chosen
    bool kept = false;          // read from the cache
    int32_t candidates = 0;     // compared with the reference; 0 where kept
    int32_t unequal = 0;        // of those, turned away
    std::string algorithm;      // "66 tile 24 stages 35 ..."
  };
  std::vector<Choice> Choices() const;

  // Why the cache was not read or not written, the last time it was not; empty if it was.
  const std::string& cache_problem() const;
  // The file, "" without a cache directory.
  const std::string& cache_path() const;
  // The library's version, e.g. 130100.
  int64_t version() const;

 private:
  class Impl;
  explicit ProductLibrary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue::kernels
