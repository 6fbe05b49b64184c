# Writes what the Python package has from the build. elementary.py and arithmetic.py of quadrants/lang/_ops:
# functions of the op table's rows. quadrants/_build_info.py: their names, the commit from git and LLVM's
# version. A tree without git or without commits says "unknown". Configuring runs again when HEAD or the
# table moves.

set(table "${PROJECT_SOURCE_DIR}/src/ir/ops.inc")
set(writer "${PROJECT_SOURCE_DIR}/cmake/op_functions.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${table}" "${writer}")
execute_process(COMMAND "${Python3_EXECUTABLE}" "${writer}" "${table}" "${QD_PACKAGE_DIR}/lang/_ops"
    OUTPUT_VARIABLE QD_OPS OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
install(FILES "${QD_PACKAGE_DIR}/lang/_ops/elementary.py" "${QD_PACKAGE_DIR}/lang/_ops/arithmetic.py"
    DESTINATION quadrants/lang/_ops)

set(QD_COMMIT unknown)
find_program(QD_GIT git)
if(QD_GIT)
    execute_process(COMMAND "${QD_GIT}" rev-parse --short=12 HEAD
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        OUTPUT_VARIABLE commit ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
        set(QD_COMMIT "${commit}")
    endif()
    execute_process(COMMAND "${QD_GIT}" rev-parse --git-path logs/HEAD  # elsewhere in a worktree
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        OUTPUT_VARIABLE head_log ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(head_log "${head_log}" ABSOLUTE BASE_DIR "${PROJECT_SOURCE_DIR}")
    if(EXISTS "${head_log}")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${head_log}")
    endif()
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/build_info.py.in" "${QD_PACKAGE_DIR}/_build_info.py" @ONLY)
install(FILES "${QD_PACKAGE_DIR}/_build_info.py" DESTINATION quadrants)
