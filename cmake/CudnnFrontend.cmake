# cuDNN's headers and those of its frontend: SEGUE_CUDNN_HEADERS lists their directories, or is
# empty and SEGUE_NO_CUDNN says why. The library itself is loaded at run time.
#
# The frontend is a set of headers inside a Python wheel. They are searched at
# SEGUE_CUDNN_FRONTEND, where the system has headers, and at last fetched with pip into the build
# directory (SEGUE_FETCH_CUDNN_FRONTEND; an attempt that fails costs the peer, not the build).
set(SEGUE_CUDNN_FRONTEND
    ""
    CACHE PATH "Directory of cudnn_frontend.h; empty: search, then fetch")
option(SEGUE_FETCH_CUDNN_FRONTEND "Fetch cuDNN's frontend headers from PyPI" ON)
set(SEGUE_CUDNN_FRONTEND_VERSION 1.32.0)

set(fetched ${CMAKE_BINARY_DIR}/cudnn_frontend)
find_path(
  SEGUE_CUDNN_INCLUDE cudnn.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS}
  DOC "Directory of cudnn.h")
find_path(
  SEGUE_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
  HINTS ${SEGUE_CUDNN_FRONTEND} ${SEGUE_CUDNN_FRONTEND}/include ${fetched}/include
  DOC "Directory of cudnn_frontend.h")

# A wheel is a zip archive whose headers lie under include/.
function(segue_fetch_cudnn_frontend)
  find_program(SEGUE_PYTHON3 python3)
  if(NOT SEGUE_PYTHON3)
    set(fetch_problem "no python3" PARENT_SCOPE)
    return()
  endif()
  message(STATUS "Fetching nvidia-cudnn-frontend ${SEGUE_CUDNN_FRONTEND_VERSION} (headers)")
  file(MAKE_DIRECTORY ${fetched})
  # The headers are the same in every wheel: any interpreter and platform will do.
  execute_process(
    COMMAND
      ${SEGUE_PYTHON3} -m pip --disable-pip-version-check --timeout 15 --retries 1 download --quiet
      --no-deps --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_x86_64 --dest
      ${fetched} nvidia-cudnn-frontend==${SEGUE_CUDNN_FRONTEND_VERSION}
    RESULT_VARIABLE status
    ERROR_VARIABLE problem
    OUTPUT_QUIET TIMEOUT 120)
  file(GLOB wheels ${fetched}/nvidia_cudnn_frontend-${SEGUE_CUDNN_FRONTEND_VERSION}-*.whl)
  if(NOT status EQUAL 0 OR NOT wheels)
    string(REGEX REPLACE "\n.*" "" problem "${problem}")
    set(fetch_problem "pip download failed: ${problem}" PARENT_SCOPE)
    return()
  endif()
  list(GET wheels 0 wheel)
  file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${fetched} PATTERNS "include/*")
  file(REMOVE ${wheels})
endfunction()

set(fetch_problem "")
if(SEGUE_CUDNN_INCLUDE AND NOT SEGUE_CUDNN_FRONTEND_INCLUDE AND SEGUE_FETCH_CUDNN_FRONTEND)
  segue_fetch_cudnn_frontend()
  find_path(SEGUE_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${fetched}/include)
endif()

set(SEGUE_CUDNN_HEADERS "")
set(SEGUE_NO_CUDNN "")
if(NOT SEGUE_CUDNN_INCLUDE)
  set(SEGUE_NO_CUDNN "no cudnn.h beside the CUDA toolkit's headers")
elseif(NOT SEGUE_CUDNN_FRONTEND_INCLUDE)
  set(SEGUE_NO_CUDNN "no cudnn_frontend.h: set SEGUE_CUDNN_FRONTEND; ${fetch_problem}")
else()
  set(SEGUE_CUDNN_HEADERS ${SEGUE_CUDNN_INCLUDE} ${SEGUE_CUDNN_FRONTEND_INCLUDE})
endif()
if(SEGUE_CUDNN_HEADERS)
  message(STATUS "cuDNN: headers at ${SEGUE_CUDNN_HEADERS}")
else()
  message(STATUS "cuDNN: left out: ${SEGUE_NO_CUDNN}")
endif()
