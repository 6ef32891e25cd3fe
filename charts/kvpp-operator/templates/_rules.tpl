{{- /*
What the operator may do. tests/charts/test_rbac.py compares this list with the kinds and calls of the code.

A server-side apply that creates an object needs `create` beside `patch`. `get` is for an object that the watches do not
show: one of our names without our label, which is then left alone.
*/}}
{{- define "kvpp-operator.rules" -}}
{{- $owned := list "get" "list" "watch" "create" "patch" "delete" -}}
# The deployments are read; only their status is written.
- apiGroups: [serving.kvpp.io]
  resources: [kvppdeployments]
  verbs: [get, list, watch]
- apiGroups: [serving.kvpp.io]
  resources: [kvppdeployments/status]
  verbs: [patch]
# Owner references with blockOwnerDeletion need it where the admission plugin OwnerReferencesPermissionEnforcement is on.
- apiGroups: [serving.kvpp.io]
  resources: [kvppdeployments/finalizers]
  verbs: [update]
# What a deployment owns.
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: {{ toJson $owned }}
- apiGroups: [apps]
  resources: [controllerrevisions, deployments, statefulsets]
  verbs: {{ toJson $owned }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: {{ toJson $owned }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: {{ toJson $owned }}
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: {{ toJson $owned }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings, roles]
  verbs: {{ toJson $owned }}
# The same, of APIs that a cluster may lack.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: {{ toJson $owned }}
- apiGroups: [networking.serving.volcano.sh]
  resources: [modelroutes, modelservers]
  verbs: {{ toJson $owned }}
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: {{ toJson $owned }}
# Why an engine is not ready stands in its pods. Pods of a group that a lost node can't end are taken away.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# One Event for each transition; the same one again is counted in the one that is there. Why there is no pod, only events say.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [get, list, create, patch]
# Handed on: nobody can grant a right that they lack, and the operator writes the Roles of these pods.
# MetaService pods elect a leader by a Lease, and the leader labels its own pod.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
# Router pods follow the ready engines.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}

{{- /* Engines of a namespace that is being deleted are told at once. A list of namespaces to serve does without. */}}
{{- define "kvpp-operator.namespaceRules" -}}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}

{{- /* Ports of hosts are one for the whole cluster, whatever namespaces the operator serves: it always watches the ledger. */}}
{{- define "kvpp-operator.ledgerRules" -}}
# Written by compare-and-swap: an update with the resourceVersion that was read.
- apiGroups: [serving.kvpp.io]
  resources: [kvppportledgers]
  verbs: [get, list, watch, create, update]
{{- end }}

{{- /* Before the first claim, the ledger is compared with what runs anywhere. A ClusterRole with the rules above has these. */}}
{{- define "kvpp-operator.ledgerHealingRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list]
{{- end }}
