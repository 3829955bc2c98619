# ruff: noqa: F821  (a function that is pulled in is defined by a comment)
# %% [markdown]
# # A sample

# %%
from sample_course import desk as open_desk

desk = open_desk()

# %% exercise="double"
### SOLUTION FROM sample_course.arithmetic:double

# %% check="double"
desk.check("double", double)


# %% exercise="first"
def first(word):
    """The first letter of the word."""
    ### BEGIN SOLUTION
    return word[0]
    ### FAULT return word[1]
    ### END SOLUTION


# %% check="first"
desk.check("first", first)

# %% exercise="size"
### BEGIN SOLUTION
size = len("abc")
### END SOLUTION

# %% check="size"
desk.check("size", size)

# %% exercise="reason"
### BEGIN SOLUTION
reason = "a"
### END SOLUTION

# %% check="reason"
desk.check("reason", reason)

# %%
print("the last cell")
# > the last cell
