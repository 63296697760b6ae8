# Writes OUT, a header that defines SEGUE_COMMIT. Run at every build; the file is touched only when
# the commit changed.
cmake_policy(VERSION 3.21)
execute_process(
  COMMAND git describe --always --dirty --abbrev=10 --exclude=*
  WORKING_DIRECTORY ${SOURCE_DIR}
  OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR commit STREQUAL "")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#pragma once\n\n#define SEGUE_COMMIT \"@commit@\"\n" @ONLY)
