"""Cost models judged: what they predict beside what is counted, and whether the choice they lead to is the best one."""
