// Where exceptions of the standard library become errors.
#pragma once

#include <exception>
#include <new>

#include "segue/status.h"

namespace segue::runtime {

// Runs `body`, turning what the standard library throws (no memory for a vector, no more threads)
// into an error: no exception crosses the API.
template <typename Body>
auto WithoutExceptions(const char* operation, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{.code = ErrorCode::kOutOfMemory,
                 .operation = operation,
                 .argument = "host memory",
                 .got = "a refused allocation",
                 .wanted = ""};
  } catch (const std::exception& exception) {
    return Error{.code = ErrorCode::kInternal,
                 .operation = operation,
                 .argument = "",
                 .got = exception.what(),
                 .wanted = ""};
  }
}

}  // namespace segue::runtime
