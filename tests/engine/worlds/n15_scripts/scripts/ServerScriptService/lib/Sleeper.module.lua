task.wait(0.1)
return "slept"
