// The engine's spelling of std::span.
#pragma once

#include <span>

namespace segue {

template <typename T>
using Span = std::span<T>;

}  // namespace segue
