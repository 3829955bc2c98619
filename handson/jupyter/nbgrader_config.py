"""nbgrader with the settings of this course: `allhands.grade.nbgrader_course.configure`.

JupyterLab's Validate button reads this file (`make start` puts its folder on JUPYTER_CONFIG_PATH).
An instructor who runs nbgrader's own commands copies it into the course folder.
"""

from allhands.grade.nbgrader_course import configure

configure(get_config())  # noqa: F821  (nbgrader defines it)
