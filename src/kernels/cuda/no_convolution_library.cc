// Linked instead of the convolution library where the build has no cuDNN headers.
#include "kernels/convolution_library.h"

namespace segue::kernels {

class ConvolutionLibrary::Impl {};

Result<std::unique_ptr<ConvolutionLibrary>> ConvolutionLibrary::Create(const Settings&) {
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "load cuDNN",
               .argument = "",
               .got = "a build without cuDNN's headers",
               .wanted = "a build with the preset 'cuda' where they are found"};
}

ConvolutionLibrary::ConvolutionLibrary(std::unique_ptr<Impl>) {}
ConvolutionLibrary::~ConvolutionLibrary() = default;
const char* ConvolutionLibrary::Rejects(const Conv2dParams&) { return "there is no library"; }
Status ConvolutionLibrary::Convolve(const Conv2dParams&, const Stream&) {
  return Error{.code = ErrorCode::kUnsupported, .operation = "conv2d", .got = "no library"};
}
std::vector<ConvolutionLibrary::Choice> ConvolutionLibrary::Choices() const { return {}; }

}  // namespace segue::kernels
