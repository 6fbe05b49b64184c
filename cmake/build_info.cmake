# Writes quadrants/_build_info.py: the commit from git and LLVM's version. A tree without git or
# without commits says "unknown". Configuring runs again when HEAD moves.

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
