// Linked in place of cublaslt/ where there is no CUDA toolkit or no cublasLt.h.
#include "kernels/product_library.h"

namespace segue::kernels {
namespace {

Error NoLibrary() {
  return {.code = ErrorCode::kUnsupported,
          .operation = "load cuBLASLt",
          .argument = "",
          .got = "a build without cuBLASLt's header",
          .wanted = "a build with the preset 'cuda' and cublasLt.h"};
}

}  // namespace

class ProductLibrary::Impl {};

ProductLibrary::ProductLibrary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProductLibrary::~ProductLibrary() = default;

Result<std::unique_ptr<ProductLibrary>> ProductLibrary::Create(const Settings&) {
  return NoLibrary();
}

// Nobody has an object to call these of.
Status ProductLibrary::Multiply(const ProductParams&, const Stream&) { return NoLibrary(); }
Status ProductLibrary::Supports(const ProductForm&) { return NoLibrary(); }
Status ProductLibrary::Warm(Span<const ProductShape>, const Stream&, DeviceMemory*) {
  return NoLibrary();
}
Result<int64_t> ProductLibrary::ScratchBytes(Span<const ProductShape>) const { return NoLibrary(); }
Result<bool> ProductLibrary::PackedEqualsParts(const ProductForm&, Span<const int64_t>,
                                               const Stream&) {
  return NoLibrary();
}
std::vector<ProductLibrary::Choice> ProductLibrary::Choices() const { return {}; }
const std::string& ProductLibrary::cache_problem() const { return cache_path(); }
const std::string& ProductLibrary::cache_path() const {
  static const std::string none;
  return none;
}
int64_t ProductLibrary::version() const { return 0; }

}  // namespace segue::kernels
