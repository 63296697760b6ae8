include(GoogleTest)

# One CMake target a module. Dependencies are the include rules of DESIGN.md written once more for
# the linker; tools/check_includes reads the #include lines themselves.

add_library(segue_flags INTERFACE)
target_compile_features(segue_flags INTERFACE cxx_std_20)
target_compile_options(
  segue_flags
  INTERFACE
    # Results must not depend on which expressions a compiler chooses to contract: fused
    # multiply-adds are written out (std::fma, intrinsics) where they are meant.
    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-missing-field-initializers -Werror>
    # GCC 12 reports "literal" + std::string(...) as an overlapping copy (GCC bug 105651).
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
    # Kernels unroll into much the same instructions over and over: a sixth of the bytes.
    $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all>)
if(SEGUE_SANITIZE OR SEGUE_SANITIZE_THREADS)
  if(SEGUE_SANITIZE_THREADS)
    set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
  else()
    set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  endif()
  if(SEGUE_FUZZ)
    list(APPEND sanitize -fsanitize=fuzzer-no-link)
  endif()
  target_compile_options(segue_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${sanitize}>)
  # At -O1, which compiles in three fifths of the time, GCC warns of what -O2 would have seen to be
  # impossible. The other presets judge the same sources.
  target_compile_options(segue_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error>)
  target_link_options(segue_flags INTERFACE ${sanitize})
endif()

# segue_module(<name> SOURCES <files...> [DEPS <targets...>] [PRIVATE_DEPS <targets...>])
function(segue_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(segue_${name} STATIC ${arg_SOURCES})
  target_include_directories(segue_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                                  ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(
    segue_${name}
    PUBLIC ${arg_DEPS}
    PRIVATE segue_flags ${arg_PRIVATE_DEPS})
endfunction()

# segue_test(<module> SOURCES <files...> [DEPS <targets...>]): one test program a module; ctest
# lists its cases one by one.
function(segue_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(test_${name} ${arg_SOURCES})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${name} PRIVATE SEGUE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(test_${name} PRIVATE segue_${name} ${arg_DEPS} segue_flags GTest::gtest
                                             GTest::gtest_main)
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60)
endfunction()

# segue_small(<targets...>): their host code runs once a request or a case, and the time goes to what
# it calls. Small comes first: about half of the bytes of -O3.
function(segue_small)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-Os>)
  endforeach()
endfunction()

# segue_isa_sources(<avx2|avx512> <files...>): compiles these files for wider registers. Code in them
# runs only after kernels/cpu/isa.h has found the processor able to.
function(segue_isa_sources isa)
  set(options -mavx2 -mfma -mf16c)
  if(isa STREQUAL "avx512")
    list(APPEND options -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC 12 takes the deliberately undefined operand inside its own AVX-512 intrinsics for a
      # mistake (GCC bug 105593).
      list(APPEND options -Wno-maybe-uninitialized)
    endif()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()
